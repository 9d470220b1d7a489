// A stable radix sort of (place, item) pairs, least significant digit first, over only the bits that
// the places need. Each pass counts digits per tile, scans the counts, and moves every pair to its
// rank: pairs of one digit keep their order, because tiles, warps and lanes are counted in order.
//
// Ranking inside a warp by matching digits follows Merrill and Grimshaw, "High performance and
// scalable radix sorting" (2011), with the match instruction in place of their ballots.
#ifndef TVM_SCATTER_RADIX_SORT
#define TVM_SCATTER_RADIX_SORT
#include "block_scan.cuh"
#include "grid.cuh"

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
  for (int i = threadIdx.x; i < kSortTile; i += kSortThreads)
    if (first + i < size) atomicAdd(&histogram[digit_of<bits>(keys[first + i], shift)], 1u);
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
  // seen[warp][digit]: first how many a warp has met, then the rank of its first one in the tile.
  // Neither exceeds a tile, so 16 bits do.
  __shared__ unsigned short seen[kSortWarps][kDigits];
  __shared__ uint32 moved[kDigits];  // from a rank in the tile to one in the whole list
  __shared__ Key staged[kSortTile];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  for (int i = threadIdx.x; i < kSortWarps * kDigits; i += kSortThreads)
    seen[i / kDigits][i % kDigits] = 0;
  __syncthreads();

  const int64 tile = static_cast<int64>(blockIdx.x) * kSortTile;
  const int64 first = tile + warp * kWarp * kSortItems + lane;
  Key held[kSortItems];
  uint32 rank[kSortItems];
#pragma unroll
  for (int i = 0; i < kSortItems; ++i) {
    const int64 at = first + i * kWarp;
    held[i] = at < size ? keys[at] : 0;
  }
#pragma unroll
  for (int i = 0; i < kSortItems; ++i) {
    const bool inside = first + i * kWarp < size;
    // A digit of its own for the lanes past the end, so that the whole warp can match.
    const uint32 digit = inside ? digit_of<bits>(held[i], shift) : kDigits;
    const uint32 peers = __match_any_sync(kAllLanes, digit);
    const uint32 before = __popc(peers & ((1u << lane) - 1));
    uint32 met = 0;
    if (inside) met = seen[warp][digit];
    __syncwarp();
    if (inside && before == 0) seen[warp][digit] = static_cast<unsigned short>(met + __popc(peers));
    __syncwarp();
    rank[i] = met + before;
  }
  __syncthreads();

  // Where digits begin: in the tile after all smaller digits of it, in the list after all smaller
  // digits and earlier tiles.
  uint32 tile_carry = 0, list_carry = 0;
  for (int start = 0; start < kDigits; start += kSortThreads) {
    const int digit = start + threadIdx.x;
    uint32 of_tile = 0;
    if (digit < kDigits) {
#pragma unroll
      for (int w = 0; w < kSortWarps; ++w) of_tile += seen[w][digit];
    }
    uint32 tile_total, list_total;
    uint32 in_tile = tile_carry + exclusive_in_block<kSortThreads>(of_tile, tile_total);
    const uint32 of_list = digit < kDigits ? totals[digit] : 0;
    const uint32 in_list = list_carry + exclusive_in_block<kSortThreads>(of_list, list_total);
    if (digit < kDigits) {
      moved[digit] =
          in_list + counts[static_cast<int64>(digit) * gridDim.x + blockIdx.x] - in_tile;
#pragma unroll
      for (int w = 0; w < kSortWarps; ++w) {
        const uint32 met = seen[w][digit];
        seen[w][digit] = static_cast<unsigned short>(in_tile);
        in_tile += met;
      }
    }
    tile_carry += tile_total;
    list_carry += list_total;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kSortItems; ++i) {
    if (first + i * kWarp >= size) continue;
    rank[i] += seen[warp][digit_of<bits>(held[i], shift)];
    staged[rank[i]] = held[i];
  }
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
