// A stable radix sort of (place, item) pairs, least significant digit first, over only the bits that
// the places need. Each pass counts digits per tile, scans the counts, and moves every pair to its
// rank: pairs of one digit keep their order, because tiles, warps and lanes are counted in order.
#ifndef TVM_SCATTER_RADIX_SORT
#define TVM_SCATTER_RADIX_SORT
#include "grid.cuh"
#include "stable_ranks.cuh"

namespace tvm_scatter {

constexpr int kSortThreads = 256;
constexpr int kSortWarps = kSortThreads / kWarp;
constexpr int kSortItems = 16;  // pairs of one thread
constexpr int kSortTile = kSortThreads * kSortItems;

// The place of every item, or one past the last for an update that is dropped: it sorts to the end.
template <class P, class Key>
__device__ __forceinline__ void make_keys(Key* keys, const Indices<P>& indices,
                                          const Sizes<P>& sizes) {
  for_each_place<P, 4>(indices, sizes, [&](int64 at, typename P::Offset place) {
    if (at < sizes.items()) keys[at] = static_cast<Key>(place);
  });
}

template <int bits, class Key>
__device__ __forceinline__ uint32 digit_of(Key key, int shift) {
  return static_cast<uint32>(key >> shift) & ((1u << bits) - 1);
}

// counts[digit * tiles + tile]: pairs of a tile with that digit.
template <int bits, class Key>
__device__ __forceinline__ void count_digits(uint32* counts, const Key* keys, int64 size,
                                             int shift) {
  __shared__ uint32 histogram[1 << bits];
  for (int d = threadIdx.x; d < (1 << bits); d += kSortThreads) histogram[d] = 0;
  __syncthreads();
  const int64 first = static_cast<int64>(blockIdx.x) * kSortTile;
  // All are read before any is counted.
  Key held[kSortItems];
#pragma unroll
  for (int i = 0; i < kSortItems; ++i) {
    const int64 at = first + i * kSortThreads + threadIdx.x;
    if (at < size) held[i] = keys[at];
  }
#pragma unroll
  for (int i = 0; i < kSortItems; ++i)
    if (first + i * kSortThreads + threadIdx.x < size)
      atomicAdd(&histogram[digit_of<bits>(held[i], shift)], 1u);
  __syncthreads();
  for (int d = threadIdx.x; d < (1 << bits); d += kSortThreads)
    counts[static_cast<int64>(d) * gridDim.x + blockIdx.x] = histogram[d];
}

// One block for each digit: its counts become their exclusive sums over tiles, its total goes aside.
__device__ __forceinline__ void scan_counts(uint32* counts, uint32* totals, int64 tiles) {
  uint32* const row = counts + static_cast<int64>(blockIdx.x) * tiles;
  const uint32 all = scan_in_block<kSortThreads>(row, tiles);
  if (threadIdx.x == 0) totals[blockIdx.x] = all;
}

// Move every pair of a tile to its rank. The first pass has no items yet: they are in their own order.
//
// The tile is first ordered by digit in shared memory, so that neighbouring threads write to
// neighbouring addresses.
template <int bits, class Key>
__device__ __forceinline__ void move_to_rank(Key* keys_to, Key* items_to, const Key* keys,
                                             const Key* items, const uint32* counts,
                                             const uint32* totals, int64 size, int shift) {
  constexpr int kDigits = 1 << bits;
  __shared__ uint32 moved[kDigits];  // from a rank in the tile to one in the whole list
  __shared__ uint32 met[kSortWarps * pairs_of(kDigits)];
  __shared__ Key staged[kSortTile];
  uint32 carry = 0;
  for (int start = 0; start < kDigits; start += kSortThreads) {
    const int digit = start + threadIdx.x;
    uint32 all;
    const uint32 before =
        carry + exclusive_in_block<kSortThreads>(digit < kDigits ? totals[digit] : 0, all);
    if (digit < kDigits)
      moved[digit] = before + counts[static_cast<int64>(digit) * gridDim.x + blockIdx.x];
    carry += all;
  }
  const int64 tile = static_cast<int64>(blockIdx.x) * kSortTile;
  const int64 first = tile + number_in_block(0, kSortItems);
  Key held[kSortItems];
#pragma unroll
  for (int i = 0; i < kSortItems; ++i) {
    const int64 at = first + i * kWarp;
    // Past the end are keys of the last digit, behind all that are.
    held[i] = at < size ? keys[at] : ~static_cast<Key>(0);
  }
  // Pairs are ranked before they are staged, in the same memory.
  const StableRanks<kSortThreads, kSortItems, bits> ranks{
      reinterpret_cast<unsigned short*>(met), reinterpret_cast<uint32*>(staged), kDigits};
  Ranks<kSortItems> rank;
  ranks.find(
      rank, kSortItems, [&](int i) { return digit_of<bits>(held[i], shift); },
      [&](int digit, uint32 in_tile) { moved[digit] -= in_tile; });
#pragma unroll
  for (int i = 0; i < kSortItems; ++i) staged[rank[i]] = held[i];
  __syncthreads();
  const int owned = static_cast<int>(min(static_cast<int64>(kSortTile), size - tile));
  uint32 to[kSortItems];
#pragma unroll
  for (int i = 0; i < kSortItems; ++i) {
    const int at = i * kSortThreads + threadIdx.x;
    if (at >= owned) continue;
    const Key key = staged[at];
    to[i] = moved[digit_of<bits>(key, shift)] + at;
    keys_to[to[i]] = key;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kSortItems; ++i) {
    const int64 at = first + i * kWarp;
    if (at < size) staged[rank[i]] = items ? items[at] : static_cast<Key>(at);
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kSortItems; ++i) {
    const int at = i * kSortThreads + threadIdx.x;
    if (at < owned) items_to[to[i]] = staged[at];
  }
}

}  // namespace tvm_scatter
#endif
