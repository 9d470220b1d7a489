// The places of the elements of long lines in order, equal ones as they come: a radix sort of all lines
// together, by the digits of the keys and then by those of the lines, the lowest first.
//
// All digits are counted in one pass. Then a tile of elements learns from the tiles before it, while
// they are written, where its elements of a digit begin: A. Adinets and D. Merrill, "Onesweep: a faster
// least significant digit radix sort for GPUs" (2022). Digits that are the same for all are left out.
#ifndef TVM_SCATTER_SORT_TILES
#define TVM_SCATTER_SORT_TILES
#include "sort_lines.cuh"

namespace tvm_scatter {

constexpr int kRadixThreads = 256;
constexpr int kRadixWarps = kRadixThreads / kWarp;
static_assert(kRadixThreads == kSortDigits, "a thread has a value of a digit");
// Digits of keys of 64 bits, and of the number of a line of 32 bits.
constexpr int kMostDigits = 12;

// Elements are numbered line by line. `digits` is how many are sorted by.
template <class Place, class Key, bool descending>
struct TilesToSort {
  using Number = Bits<Key>;
  static constexpr int kKeyDigits = static_cast<int>(sizeof(Key));

  LinesToSort tensor;
  uint32 size;
  int digits;

  __device__ __forceinline__ TilesToSort(const LinesToSort& tensor, int digits)
      : tensor(tensor), size(static_cast<uint32>(tensor.lines * tensor.length)), digits(digits) {}

  __device__ __forceinline__ uint32 line_of(uint32 number) const {
    return number / static_cast<uint32>(tensor.length);
  }
  __device__ __forceinline__ uint32 place_of(uint32 number) const {
    return number % static_cast<uint32>(tensor.length);
  }
  __device__ __forceinline__ int64 offset(uint32 number) const {
    return tensor.offset(line_of(number), place_of(number));
  }
  __device__ __forceinline__ Number read(const Key* data, uint32 number) const {
    return ordered_bits<descending>(data[offset(number)]);
  }
  __device__ __forceinline__ uint32 digit(Number key, uint32 number, int which) const {
    return which < kKeyDigits ? sort_digit(key, which)
                              : sort_digit(line_of(number), which - kKeyDigits);
  }
  // The element of this number has the place `to` among all.
  __device__ __forceinline__ void write(Place* out, uint32 to, uint32 number) const {
    out[offset(to)] = static_cast<Place>(place_of(number));
  }
};

// For whole warps: one more of a digit. Many warps have one digit only.
__device__ __forceinline__ void count_digit(uint32* counts, uint32 digit, bool exists) {
  const uint32 first = __shfl_sync(kAllLanes, digit, 0);
  const uint32 same = __ballot_sync(kAllLanes, exists && digit == first);
  if (threadIdx.x % kWarp == 0) {
    atomicAdd(counts + first, static_cast<uint32>(__popc(same)));
  } else if (exists && digit != first) {
    atomicAdd(counts + digit, 1u);
  }
}

// What blocks count is in `counts[which digit][block][its value]`. With blocks first, NVRTC 13 computed
// a wrong address in `begin_digits`: it took that of its sums for a distance from the last one read.
// Begins `words` of memory with zeros.
template <int per_thread, class Place, class Key, bool descending>
__device__ __forceinline__ void count_all_digits(
    uint32* counts, uint32* words, int64 zeros, const Key* data,
    const TilesToSort<Place, Key, descending>& tiles) {
  __shared__ uint32 met[kMostDigits * kSortDigits];
  const int64 thread = static_cast<int64>(blockIdx.x) * kRadixThreads + threadIdx.x;
  const int64 step = static_cast<int64>(gridDim.x) * kRadixThreads;
  for (int64 i = thread; i < zeros; i += step) words[i] = 0;
  for (int i = threadIdx.x; i < tiles.digits * kSortDigits; i += kRadixThreads) met[i] = 0;
  __syncthreads();
  for (int64 first = thread - threadIdx.x % kWarp; first < tiles.size; first += per_thread * step) {
    typename TilesToSort<Place, Key, descending>::Number keys[per_thread];
#pragma unroll
    for (int i = 0; i < per_thread; ++i) {
      const int64 number = first + i * step + threadIdx.x % kWarp;
      keys[i] = number < tiles.size ? tiles.read(data, static_cast<uint32>(number)) : 0;
    }
#pragma unroll
    for (int i = 0; i < per_thread; ++i) {
      const int64 number = first + i * step + threadIdx.x % kWarp;
      for (int which = 0; which < tiles.digits; ++which)
        count_digit(met + which * kSortDigits,
                    tiles.digit(keys[i], static_cast<uint32>(number), which), number < tiles.size);
    }
  }
  __syncthreads();
  for (int which = 0; which < tiles.digits; ++which) {
    const int64 own = (static_cast<int64>(which) * gridDim.x + blockIdx.x) * kSortDigits;
    counts[own + threadIdx.x] = met[which * kSortDigits + threadIdx.x];
  }
}

// A block for each digit that is sorted by: where its values begin, and whether all have one of them.
__device__ __forceinline__ void begin_digits(uint32* begins, uint32* skipped, const uint32* counts,
                                             int blocks, uint32 size) {
  const uint32* const own = counts + static_cast<int64>(blockIdx.x) * blocks * kSortDigits;
  uint32 count = 0, all;
#pragma unroll 8
  for (int block = 0; block < blocks; ++block) count += own[block * kSortDigits + threadIdx.x];
  const uint32 before = exclusive_in_block<kRadixThreads>(count, all);
  begins[static_cast<int64>(blockIdx.x) * kSortDigits + threadIdx.x] = before;
  if (count == size) skipped[blockIdx.x] = 1;
}

// What a tile tells those behind it: how many it has of a digit, or how many there are up to its end.
constexpr uint32 kOwnCount = 1u << 30, kWholeCount = 2u << 30, kCountBits = kOwnCount - 1;

__device__ __forceinline__ uint32 count_before(const uint32* told, int64 tile) {
  constexpr int kTogether = 8;
  uint32 sum = 0;
  while (tile > 0) {
    uint32 next[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i)
      next[i] = tile > i ? *const_cast<const volatile uint32*>(told + (tile - 1 - i) * kSortDigits)
                         : kWholeCount;
    int heard = 0;
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (heard < i || next[i] == 0) continue;
      sum += next[i] & kCountBits;
      if (next[i] & kWholeCount) return sum;
      heard = i + 1;
    }
    tile -= heard;
  }
  return sum;
}

// The memory of a sort. Of each digit that is sorted by there are the numbers of `begins`, whether it is
// `skipped`, the next tile, and what tiles have `told`.
template <class Number>
struct SortMemory {
  Number* keys[2];
  uint32* numbers[2];
  const uint32* begins;
  const uint32* skipped;
  uint32* next;
  uint32* told;
};

// Moves a tile to where it goes by one digit.
template <int per_thread, class Place, class Key, bool descending>
__device__ __forceinline__ void sort_tile(Place* out, const Key* data,
                                          const SortMemory<Bits<Key>>& memory,
                                          const TilesToSort<Place, Key, descending>& tiles,
                                          int which) {
  using Number = Bits<Key>;
  constexpr int kTile = kRadixThreads * per_thread;
  __shared__ Number staged[kTile];
  __shared__ unsigned char digits[kTile];
  __shared__ uint32 met[kRadixWarps * pairs_of(kSortDigits)];
  __shared__ uint32 begins[kSortDigits + 1];  // of the digits in the tile
  __shared__ uint32 moved[kSortDigits];       // from there to the place among all
  __shared__ uint32 taken;
  int before = 0, after = 0;
  for (int other = 0; other < tiles.digits; ++other) {
    const bool moves = memory.skipped[other] == 0;
    before += other < which && moves;
    after += other > which && moves;
  }
  if (memory.skipped[which]) {
    if (which + 1 < tiles.digits || before > 0) return;
    // All are equal.
    for (int i = threadIdx.x; i < kTile; i += kRadixThreads) {
      const int64 number = static_cast<int64>(blockIdx.x) * kTile + i;
      if (number < tiles.size)
        tiles.write(out, static_cast<uint32>(number), static_cast<uint32>(number));
    }
    return;
  }
  // In the order in which blocks begin, so that all earlier tiles have begun.
  if (threadIdx.x == 0) taken = atomicAdd(memory.next + which, 1u);
  __syncthreads();
  const int64 tile = taken, begin = tile * kTile;
  const uint32 owned = static_cast<uint32>(min(static_cast<int64>(kTile), tiles.size - begin));
  const Number* const keys_from = memory.keys[(before + 1) % 2];
  const uint32* const numbers_from = memory.numbers[(before + 1) % 2];
  Number keys[per_thread];
  uint32 numbers[per_thread];
#pragma unroll
  for (int i = 0; i < per_thread; ++i) {
    const uint32 at = number_in_block(i, per_thread);
    const bool exists = at < owned;
    const uint32 from = static_cast<uint32>(begin + at);
    numbers[i] = exists && before > 0 ? numbers_from[from] : from;
    keys[i] = !exists ? 0 : before > 0 ? keys_from[from] : tiles.read(data, from);
  }
  const StableRanks<kRadixThreads, per_thread, kSortDigitBits> ranks{
      reinterpret_cast<unsigned short*>(met), reinterpret_cast<uint32*>(staged), kSortDigits};
  Ranks<per_thread> rank;
  // What is behind the last element is the last of the tile.
  const auto digit_of = [&](int i) {
    return number_in_block(i, per_thread) < owned ? tiles.digit(keys[i], numbers[i], which)
                                                  : kSortDigits - 1;
  };
  ranks.find(rank, per_thread, digit_of, [&](int digit, uint32 first) { begins[digit] = first; });
  if (threadIdx.x == 0) begins[kSortDigits] = owned;
  __syncthreads();
  const int value = threadIdx.x;
  const uint32 own = begins[value + 1] - begins[value];
  uint32* const told = memory.told + static_cast<int64>(which) * gridDim.x * kSortDigits + value;
  volatile uint32* const telling = told + tile * kSortDigits;
  if (tile > 0) *telling = kOwnCount | own;
  const uint32 earlier = count_before(told, tile);
  *telling = kWholeCount | (earlier + own);
  moved[value] = memory.begins[which * kSortDigits + value] + earlier - begins[value];
#pragma unroll
  for (int i = 0; i < per_thread; ++i) {
    staged[rank[i]] = numbers[i];
    digits[rank[i]] = static_cast<unsigned char>(digit_of(i));
  }
  __syncthreads();
  uint32 to[per_thread];
#pragma unroll
  for (int i = 0; i < per_thread; ++i) {
    const uint32 at = i * kRadixThreads + threadIdx.x;
    to[i] = moved[digits[at]] + at;
    if (at >= owned) continue;
    const uint32 number = static_cast<uint32>(staged[at]);
    if (after == 0) {
      tiles.write(out, to[i], number);
    } else {
      memory.numbers[before % 2][to[i]] = number;
    }
  }
  if (after == 0) return;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < per_thread; ++i) staged[rank[i]] = keys[i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < per_thread; ++i) {
    const uint32 at = i * kRadixThreads + threadIdx.x;
    if (at < owned) memory.keys[before % 2][to[i]] = staged[at];
  }
}

}  // namespace tvm_scatter
#endif
