// Grouped reduction: the updates of each destination are listed one after another, in no particular
// order, and every output row is written once from its list or, if it has none, from the data.
//
// Listing needs no sort: an update's rank among those of its destination is what an atomic counter
// held before it, and where a destination's list begins is where an atomic cursor stood. Long lists
// are cut into chunks that are reduced by whoever is free and combined by atomics.
#ifndef TVM_SCATTER_GROUPED
#define TVM_SCATTER_GROUPED
#include "block_scan.cuh"
#include "listed_rows.cuh"

namespace tvm_scatter {

constexpr int kGroupThreads = 256;
constexpr int kGroupItems = 4;  // items of one thread
constexpr int kGroupTile = kGroupThreads * kGroupItems;

// A destination with a long list, and the number of its first chunk among all chunks.
struct LongList {
  uint32 place, first_chunk;
};

// `cursors` and `counts` start as zeros.
struct Groups {
  using Key = uint32;
  uint64* cursors;  // entries listed; long lists (high half) with their chunks (low half)
  uint32* counts;   // updates of each place
  uint32* begins;   // where each place's list begins
  uint32* ranks;    // of each item in its list
  uint32* list;     // items, list after list
  uint32* slots;    // of each place that has one, its long list
  LongList* long_lists;

  __device__ __forceinline__ uint32 chunks() const { return static_cast<uint32>(cursors[1]); }
  __device__ __forceinline__ uint32 lists() const { return static_cast<uint32>(cursors[1] >> 32); }
  __device__ __forceinline__ Listed find(int64 place) const {
    const uint32 count = counts[place];
    const bool summed = count > kLongList;
    return Listed{count, count ? (summed ? slots : begins)[place] : 0, summed};
  }
};

// Count the updates of each place, and rank each among them. A block counts in a table of its own and
// then adds to the counts of all, so that a destination that takes every update does not queue them
// all; a place whose slot in the table another place has is counted among all at once.
template <class P>
__device__ __forceinline__ void rank_updates(const Groups& groups, const Indices<P>& indices,
                                             const Sizes<P>& sizes) {
  using Offset = typename P::Offset;
  __shared__ uint32 tags[kGroupTile];    // the place of each slot
  __shared__ uint32 met[kGroupTile];     // its updates in this block
  __shared__ uint32 before[kGroupTile];  // and in blocks that came first
  for (int i = threadIdx.x; i < kGroupTile; i += kGroupThreads) met[i] = 0;
  const int64 first = static_cast<int64>(blockIdx.x) * kGroupTile + threadIdx.x;
  const Offset places = sizes.destinations();
  Offset place[kGroupItems];
  uint32 rank[kGroupItems];
  bool tabled[kGroupItems];
  auto slot_of = [](Offset at) { return static_cast<uint32>(at) % kGroupTile; };
  places_of<P>(place, first, kGroupThreads, indices, sizes);
#pragma unroll
  for (int u = 0; u < kGroupItems; ++u)
    // Of several places for one slot any will do.
    if (place[u] < places) atomicExch(&tags[slot_of(place[u])], static_cast<uint32>(place[u]));
  __syncthreads();
#pragma unroll
  for (int u = 0; u < kGroupItems; ++u) {
    if (place[u] >= places) continue;
    tabled[u] = tags[slot_of(place[u])] == static_cast<uint32>(place[u]);
    // Two calls and not one on either address, which the compiler would not know to be shared memory.
    if (tabled[u]) {
      rank[u] = atomicAdd(&met[slot_of(place[u])], 1u);
    } else {
      rank[u] = atomicAdd(groups.counts + place[u], 1u);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kGroupTile; i += kGroupThreads)
    if (met[i]) before[i] = atomicAdd(groups.counts + tags[i], met[i]);
  __syncthreads();
#pragma unroll
  for (int u = 0; u < kGroupItems; ++u)
    if (place[u] < places)
      groups.ranks[first + u * kGroupThreads] =
          rank[u] + (tabled[u] ? before[slot_of(place[u])] : 0);
}

// One thread for each place: where its list begins, and its chunks if it is long.
template <class P>
__device__ __forceinline__ void begin_lists(const Groups& groups, const Sizes<P>& sizes,
                                            uint32 chunk) {
  __shared__ uint32 first;
  const int64 place = first_in_grid();
  const uint32 count = place < sizes.destinations() ? groups.counts[place] : 0;
  uint32 total;
  const uint32 before = exclusive_in_block<kGroupThreads>(count, total);
  if (threadIdx.x == 0)
    first = static_cast<uint32>(atomicAdd(groups.cursors, static_cast<uint64>(total)));
  __syncthreads();
  if (count == 0) return;
  groups.begins[place] = first + before;
  if (count <= kLongList) return;
  // Lists and chunks are taken together, so that both are numbered in the same order.
  const uint64 taken = atomicAdd(groups.cursors + 1, (1ull << 32) | ceil_div(count, chunk));
  const uint32 slot = static_cast<uint32>(taken >> 32);
  groups.slots[place] = slot;
  groups.long_lists[slot] = LongList{static_cast<uint32>(place), static_cast<uint32>(taken)};
}

// Put every item into its list, and the identity where long lists will be summed.
template <class P>
__device__ __forceinline__ void list_updates(const Groups& groups,
                                             Accumulate<typename P::Data>* sums,
                                             const Indices<P>& indices, const Sizes<P>& sizes) {
  using Offset = typename P::Offset;
  const int64 first = static_cast<int64>(blockIdx.x) * kGroupTile + threadIdx.x;
  Offset place[kGroupItems];
  uint32 to[kGroupItems];
#pragma unroll
  for (int u = 0; u < kGroupItems; ++u) {
    const int64 at = first + u * kGroupThreads;
    if (at < sizes.items()) to[u] = groups.ranks[at];
  }
  places_of<P>(place, first, kGroupThreads, indices, sizes);
#pragma unroll
  for (int u = 0; u < kGroupItems; ++u)
    if (place[u] < sizes.destinations()) to[u] += groups.begins[place[u]];
#pragma unroll
  for (int u = 0; u < kGroupItems; ++u)
    if (place[u] < sizes.destinations())
      groups.list[to[u]] = static_cast<uint32>(first + u * kGroupThreads);
  fill(sums, widen(P::start()), static_cast<int64>(groups.lists()) * sizes.width());
}

// A group of lanes for each chunk of a long list.
template <class P, int lanes, int vector, int columns>
__device__ __forceinline__ void sum_long_lists(Accumulate<typename P::Data>* sums,
                                               const Groups& groups,
                                               const typename P::Updates& updates,
                                               const Sizes<P>& sizes, uint32 chunk, int64 tiles) {
  const uint32 chunks = groups.chunks(), lists = groups.lists();
  const uint32 teams = blockDim.x / lanes, team = threadIdx.x / lanes;
  const int64 work = ceil_div<int64>(chunks, teams) * tiles;
  for (int64 unit = blockIdx.x; unit < work; unit += gridDim.x) {
    const int64 part = unit / tiles;
    const uint32 wanted = static_cast<uint32>(part) * teams + team;
    Chunk<uint32> found{kNone, 0, nullptr, 0};
    if (wanted < chunks) {
      uint32 slot = 0;
      // The last list whose chunks begin at or before this one.
      for (uint32 beyond = lists; beyond - slot > 1;) {
        const uint32 middle = (slot + beyond) / 2;
        (groups.long_lists[middle].first_chunk <= wanted ? slot : beyond) = middle;
      }
      const LongList list = groups.long_lists[slot];
      const uint32 first = (wanted - list.first_chunk) * chunk;
      const uint32 length = min(chunk, groups.counts[list.place] - first);
      found = Chunk<uint32>{slot, length, groups.list + groups.begins[list.place] + first, list.place};
    }
    add_chunks<P, lanes, vector, columns>(sums, found, updates, sizes, unit - part * tiles, tiles);
  }
}

}  // namespace tvm_scatter
#endif
