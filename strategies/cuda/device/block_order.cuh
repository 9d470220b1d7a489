// The order of few updates by destination, made by one block in shared memory: a stable sort of words
// that hold a place and an item, by the low bits of the place and then by the high ones.
#ifndef TVM_SCATTER_BLOCK_ORDER
#define TVM_SCATTER_BLOCK_ORDER
#include "grid.cuh"
#include "stable_ranks.cuh"

namespace tvm_scatter {

constexpr int kBlockOrderThreads = 1024;
constexpr int kBlockOrderItems = 16;  // the most of one thread
// Bits of an item in a word.
constexpr int kBlockOrderBits = 14;

// How many of the sorted words are less than each of several.
template <int count>
__device__ __forceinline__ void words_below(uint32 (&found)[count], const uint32* words,
                                            uint32 size, const uint32 (&wanted)[count]) {
  uint32 step = 1;
  while (step <= size) step *= 2;
#pragma unroll
  for (int u = 0; u < count; ++u) found[u] = 0;
  // Side by side, because every step waits.
  for (step /= 2; step > 0; step /= 2)
#pragma unroll
    for (int u = 0; u < count; ++u)
      if (found[u] + step <= size && words[found[u] + step - 1] < wanted[u]) found[u] += step;
}

// `shared` has room for `turns` words of each thread, and behind them for 16-bit counters, of each
// warp one for each digit of `bits` bits.
template <class P, int per_thread, int bits>
__device__ __forceinline__ void order_in_block(int* permutation,
                                               int* offsets,
                                               const Indices<P>& indices, const Sizes<P>& sizes,
                                               int turns, int passes, char* shared) {
  using Offset = typename P::Offset;
  uint32* const words = reinterpret_cast<uint32*>(shared);
  const StableRanks<kBlockOrderThreads, per_thread, bits> ranks{
      reinterpret_cast<unsigned short*>(words + turns * kBlockOrderThreads), 1 << bits};
  const uint32 items = sizes.items();
  uint32 word[per_thread];
  Ranks<per_thread> rank;
  {
    Offset place[per_thread];
    places_of<P>(place, number_in_block(0, turns), kWarp, indices, sizes);
#pragma unroll
    for (int i = 0; i < per_thread; ++i) {
      const uint32 item = number_in_block(i, turns);
      // What is past the end sorts behind all.
      word[i] = item < items ? static_cast<uint32>(place[i]) << kBlockOrderBits | item : ~0u;
    }
  }
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = kBlockOrderBits + pass * bits;
    const uint32 mask = (1u << bits) - 1;
    ranks.find(rank, turns, [&](int i) { return word[i] >> shift & mask; }, [](int, uint32) {});
#pragma unroll
    for (int i = 0; i < per_thread; ++i)
      if (i < turns) words[rank[i]] = word[i];
    __syncthreads();
    if (pass + 1 == passes) break;
#pragma unroll
    for (int i = 0; i < per_thread; ++i)
      if (i < turns) word[i] = words[number_in_block(i, turns)];
  }
  for (uint32 at = threadIdx.x; at < items; at += kBlockOrderThreads)
    permutation[at] = words[at] & ((1u << kBlockOrderBits) - 1);
  constexpr int kSearches = 4;
  const uint32 places = sizes.destinations();
  for (uint32 first = threadIdx.x; first <= places; first += kBlockOrderThreads * kSearches) {
    uint32 wanted[kSearches], found[kSearches];
#pragma unroll
    for (int u = 0; u < kSearches; ++u)
      wanted[u] = min(first + u * kBlockOrderThreads, places) << kBlockOrderBits;
    words_below(found, words, items, wanted);
#pragma unroll
    for (int u = 0; u < kSearches; ++u)
      if (first + u * kBlockOrderThreads <= places)
        offsets[first + u * kBlockOrderThreads] = found[u];
  }
}

}  // namespace tvm_scatter
#endif
