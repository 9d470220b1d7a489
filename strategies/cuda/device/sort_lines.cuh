// The places of the elements of short lines in order, equal ones as they come: what a block does alone.
#ifndef TVM_SCATTER_SORT_LINES
#define TVM_SCATTER_SORT_LINES
#include "stable_ranks.cuh"
#include "team.cuh"

namespace tvm_scatter {

constexpr int kSortDigitBits = 8;
constexpr int kSortDigits = 1 << kSortDigitBits;

// An unsigned number, by which keys are in order.
template <bool descending, class Key>
__device__ __forceinline__ Bits<Key> ordered_bits(Key key) {
  const Bits<Key> bits = bit_cast<Bits<Key>>(key);
  const Bits<Key> sign = static_cast<Bits<Key>>(1) << (8 * sizeof(Key) - 1);
  return descending ? bits ^ ~sign : bits ^ sign;
}

template <class Number>
__device__ __forceinline__ uint32 sort_digit(Number bits, int digit) {
  return static_cast<uint32>(bits >> (digit * kSortDigitBits)) & (kSortDigits - 1);
}

// A tensor of shape (outer, length, inner), whose lines run along its length.
struct LinesToSort {
  int64 lines, length, inner;

  __device__ __forceinline__ int64 offset(int64 line, int64 at) const {
    return (line / inner * length + at) * inner + line % inner;
  }
};

// Lines no longer than a block. Each element counts those of its line that come before it.
template <int threads, bool descending, class Place, class Key>
__device__ __forceinline__ void sort_by_counting(Place* out, const Key* data,
                                                 const LinesToSort& tensor) {
  __shared__ Key keys[threads];
  const uint32 length = static_cast<uint32>(tensor.length), together = threads / length;
  // Neighbouring threads read what lies side by side: elements of a line, or those of several.
  const bool across = tensor.inner > 1;
  const uint32 line_in_block = across ? threadIdx.x % together : threadIdx.x / length;
  const uint32 at = across ? threadIdx.x / together : threadIdx.x % length;
  const int64 line = static_cast<int64>(blockIdx.x) * together + line_in_block;
  const bool exists = line_in_block < together && at < length && line < tensor.lines;
  const Key key = exists ? data[tensor.offset(line, at)] : Key{0};
  keys[threadIdx.x] = key;
  __syncthreads();
  if (!exists) return;
  const Key* const first = keys + line_in_block * (across ? 1 : length);
  const uint32 step = across ? together : 1;
  uint32 before = 0;
  for (uint32 i = 0; i < length; ++i) {
    const Key other = first[i * step];
    before += (descending ? other > key : other < key) || (other == key && i < at);
  }
  out[tensor.offset(line, before)] = static_cast<Place>(at);
}

// A line for each block, which keeps all of its elements and orders them by one digit after the other,
// the lowest first. What is the same for all of them is left out.
template <int threads, int per_thread, bool descending, class Place, class Key>
__device__ __forceinline__ void sort_in_block(Place* out, const Key* data,
                                              const LinesToSort& tensor) {
  using Number = Bits<Key>;
  __shared__ Number staged[threads * per_thread];
  __shared__ uint32 met[threads / kWarp * pairs_of(kSortDigits)];
  const int64 line = blockIdx.x;
  const uint32 length = static_cast<uint32>(tensor.length);
  const int turns = static_cast<int>(ceil_div<uint32>(length, threads));
  Number held[per_thread];
  uint32 places[per_thread];
  const Number first = ordered_bits<descending>(data[tensor.offset(line, 0)]);
  Number differs = 0;
#pragma unroll
  for (int i = 0; i < per_thread; ++i) {
    places[i] = number_in_block(i, turns);
    const bool exists = i < turns && places[i] < length;
    held[i] = exists ? ordered_bits<descending>(data[tensor.offset(line, places[i])]) : first;
    differs |= held[i] ^ first;
  }
  differs = Team<threads>().all(differs, [](Number a, Number b) { return a | b; });
  for (int digit = 0; digit < static_cast<int>(sizeof(Key)); ++digit) {
    if (sort_digit(differs, digit) == 0) continue;
    const StableRanks<threads, per_thread, kSortDigitBits> ranks{
        reinterpret_cast<unsigned short*>(met), reinterpret_cast<uint32*>(staged), kSortDigits};
    Ranks<per_thread> rank;
    // What is behind the line stays there.
    const auto digit_of = [&](int i) {
      return number_in_block(i, turns) < length ? sort_digit(held[i], digit) : kSortDigits - 1;
    };
    ranks.find(rank, turns, digit_of, [](int, uint32) {});
#pragma unroll
    for (int i = 0; i < per_thread; ++i)
      if (i < turns) staged[rank[i]] = held[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < per_thread; ++i)
      if (i < turns) held[i] = staged[number_in_block(i, turns)];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < per_thread; ++i)
      if (i < turns) staged[rank[i]] = static_cast<Number>(places[i]);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < per_thread; ++i)
      if (i < turns) places[i] = static_cast<uint32>(staged[number_in_block(i, turns)]);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < per_thread; ++i) {
    const uint32 at = number_in_block(i, turns);
    if (i < turns && at < length) out[tensor.offset(line, at)] = static_cast<Place>(places[i]);
  }
}

}  // namespace tvm_scatter
#endif
