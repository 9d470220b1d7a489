// A stable radix sort of (place, item) pairs, least significant digit first, over only the bits that
// the places need. Each pass counts digits per tile, scans the counts, and moves every pair to its
// rank: pairs of one digit keep their order, because tiles, warps and lanes are counted in order.
//
// Ranking inside a warp by matching digits follows Merrill and Grimshaw, "High performance and
// scalable radix sorting" (2011), with the match instruction in place of their ballots.
#ifndef TVM_SCATTER_RADIX_SORT
#define TVM_SCATTER_RADIX_SORT
#include "problem.cuh"

namespace tvm_scatter {

constexpr int kSortThreads = 256;
constexpr int kSortWarps = kSortThreads / kWarp;
constexpr int kSortItems = 16;  // pairs of one thread
constexpr int kSortTile = kSortThreads * kSortItems;

// The place of every item, or one past the last for an update that is dropped: it sorts to the end.
template <class P, class Key>
__device__ __forceinline__ void make_keys(Key* keys, const Indices<P>& indices,
                                          const Sizes<P>& sizes) {
  using Offset = typename P::Offset;
  const int64 step = static_cast<int64>(gridDim.x) * blockDim.x;
  for (int64 at = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x; at < sizes.items();
       at += step) {
    const Item<P> item(sizes, static_cast<Offset>(at));
    Offset destination;
    const bool valid = find_destination(sizes, indices, item.index, destination);
    keys[at] = static_cast<Key>(valid ? item.place(sizes, destination) : sizes.destinations());
  }
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

// The sum of `value` over the lanes up to and including this one.
__device__ __forceinline__ uint32 inclusive_in_warp(uint32 value) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const uint32 below = __shfl_up_sync(kAllLanes, value, distance);
    if (lane >= distance) value += below;
  }
  return value;
}

// The sum of `value` over the threads before this one, and over all of them.
__device__ __forceinline__ uint32 exclusive_in_block(uint32 value, uint32& total) {
  __shared__ uint32 warps[kSortWarps];
  const int warp = threadIdx.x / kWarp;
  const uint32 inclusive = inclusive_in_warp(value);
  if (threadIdx.x % kWarp == kWarp - 1) warps[warp] = inclusive;
  __syncthreads();
  uint32 before = 0;
  total = 0;
#pragma unroll
  for (int w = 0; w < kSortWarps; ++w) {
    if (w < warp) before += warps[w];
    total += warps[w];
  }
  __syncthreads();
  return before + inclusive - value;
}

// One block for each digit: its counts become their exclusive sums over tiles, its total goes aside.
__device__ __forceinline__ void scan_counts(uint32* counts, uint32* totals, int64 tiles) {
  uint32* const row = counts + static_cast<int64>(blockIdx.x) * tiles;
  uint32 carry = 0;
  for (int64 first = 0; first < tiles; first += kSortThreads) {
    const int64 at = first + threadIdx.x;
    const uint32 value = at < tiles ? row[at] : 0;
    uint32 total;
    const uint32 before = exclusive_in_block(value, total);
    if (at < tiles) row[at] = carry + before;
    carry += total;
  }
  if (threadIdx.x == 0) totals[blockIdx.x] = carry;
}

// Move every pair of a tile to its rank. The first pass has no items yet: they are in their own order.
template <int bits, class Key>
__device__ __forceinline__ void move_to_rank(Key* keys_to, Key* items_to, const Key* keys,
                                             const Key* items, const uint32* counts,
                                             const uint32* totals, int64 size, int shift) {
  constexpr int kDigits = 1 << bits;
  // seen[warp][digit]: first how many a warp has met, then where its first one goes.
  __shared__ uint32 seen[kSortWarps][kDigits];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  for (int i = threadIdx.x; i < kSortWarps * kDigits; i += kSortThreads)
    seen[i / kDigits][i % kDigits] = 0;
  __syncthreads();

  const int64 first = static_cast<int64>(blockIdx.x) * kSortTile + warp * kWarp * kSortItems + lane;
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
    if (inside && before == 0) seen[warp][digit] = met + __popc(peers);
    __syncwarp();
    rank[i] = met + before;
  }
  __syncthreads();

  // Ranks of digits: all pairs with a smaller digit, then earlier tiles, then earlier warps.
  uint32 carry = 0;
  for (int start = 0; start < kDigits; start += kSortThreads) {
    const int digit = start + threadIdx.x;
    const uint32 of_digit = digit < kDigits ? totals[digit] : 0;
    uint32 total;
    const uint32 before = exclusive_in_block(of_digit, total);
    if (digit < kDigits) {
      uint32 to = carry + before + counts[static_cast<int64>(digit) * gridDim.x + blockIdx.x];
#pragma unroll
      for (int w = 0; w < kSortWarps; ++w) {
        const uint32 met = seen[w][digit];
        seen[w][digit] = to;
        to += met;
      }
    }
    carry += total;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kSortItems; ++i) {
    const int64 at = first + i * kWarp;
    if (at >= size) continue;
    const uint32 to = seen[warp][digit_of<bits>(held[i], shift)] + rank[i];
    keys_to[to] = held[i];
    items_to[to] = items ? items[at] : static_cast<Key>(at);
  }
}

}  // namespace tvm_scatter
#endif
