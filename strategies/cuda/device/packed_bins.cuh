// Packed bins: sums of 32-bit integers of which a block holds 16 bits each, two bins to a word. What
// goes beyond them is added to the output at once, which is rare where updates are small.
#ifndef TVM_SCATTER_PACKED_BINS
#define TVM_SCATTER_PACKED_BINS
#include "bins.cuh"
#include "grid.cuh"

namespace tvm_scatter {

// Halves begin in the middle, so that sums of both signs have room.
constexpr uint32 kHalfStart = 0x8000u;

// What a half has lost or won: its sum before it was cut to 16 bits, in units of 1 << 16.
__device__ __forceinline__ int beyond_half(uint32 half, int amount) {
  return (static_cast<int>(half) + amount) >> 16;
}

template <class Data>
__device__ __forceinline__ void add_beyond(Data* bin, int units) {
  if (units) atomicAdd(bin, static_cast<Data>(static_cast<uint32>(units) << 16));
}

// Add 16 bits with a sign to the upper half of a word. Others may do so at the same time: who sees a
// half leave its range accounts for it, so the sum of halves and output is right after each step.
template <class Data>
__device__ __forceinline__ void add_to_upper(uint32* word, int amount, Data* out) {
  const uint32 old = atomicAdd(word, static_cast<uint32>(amount) << 16);
  add_beyond(out + 1, beyond_half(old >> 16, amount));
}

// The same for the lower half, whose carry goes to the upper one and is taken back from there.
template <class Data>
__device__ __forceinline__ void add_to_lower(uint32* word, int amount, Data* out) {
  const uint32 old = atomicAdd(word, static_cast<uint32>(amount));
  const int carry = beyond_half(old & 0xffffu, amount);
  if (carry == 0) return;
  add_beyond(out, carry);
  add_beyond(out + 1, beyond_half(old >> 16, carry));
  add_to_upper(word, -carry, out);
}

// Each block reduces its share of the updates. `out` holds the data.
template <class P, int unroll>
__device__ __forceinline__ void fill_packed_bins(uint32* partials, typename P::Data* out,
                                                 const typename P::Updates& updates,
                                                 const Indices<P>& indices, const Sizes<P>& sizes,
                                                 char* shared) {
  using Data = typename P::Data;
  uint32* const bins = reinterpret_cast<uint32*>(shared + bins_begin<P>);
  const int words = static_cast<int>((sizes.data_size() + 1) / 2);
  for (int i = threadIdx.x; i < words; i += blockDim.x) bins[i] = kHalfStart << 16 | kHalfStart;
  __syncthreads();
  for_each_update<P, unroll, true>(
      updates, indices, sizes, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x,
      shared, [&](int bin, Data value) {
        const int low = static_cast<short>(value);
        const uint32 high = static_cast<uint32>(value) - static_cast<uint32>(low);
        if (high) atomicAdd(out + bin, static_cast<Data>(high));
        Data* const pair = out + (bin & ~1);
        if (bin & 1) {
          add_to_upper(bins + bin / 2, low, pair);
        } else {
          add_to_lower(bins + bin / 2, low, pair);
        }
      });
  __syncthreads();
  uint32* const to = partials + static_cast<int64>(blockIdx.x) * words;
  for (int i = threadIdx.x; i < words; i += blockDim.x) to[i] = bins[i];
}

// One thread for each word adds the blocks' halves to the output.
template <class P>
__device__ __forceinline__ void merge_packed_bins(typename P::Data* out, const uint32* partials,
                                                  int blocks, const Sizes<P>& sizes) {
  using Data = typename P::Data;
  const int64 size = sizes.data_size(), words = (size + 1) / 2;
  for (int64 word = first_in_grid(); word < words; word += threads_in_grid()) {
    uint32 lower = 0, upper = 0;
#pragma unroll 12
    for (int block = 0; block < blocks; ++block) {
      const uint32 halves = partials[block * words + word];
      lower += (halves & 0xffffu) - kHalfStart;
      upper += (halves >> 16) - kHalfStart;
    }
    Data* const pair = out + 2 * word;
    pair[0] = static_cast<Data>(static_cast<uint32>(pair[0]) + lower);
    if (2 * word + 1 < size) pair[1] = static_cast<Data>(static_cast<uint32>(pair[1]) + upper);
  }
}

}  // namespace tvm_scatter
#endif
