// Grouped reduction: the updates of each destination are listed one after another, in no particular
// order, and every output row is written once from its list or, if it has none, from the data.
//
// Listing needs no sort: an update's rank among those of its destination is what an atomic counter
// held before it, and where a destination's list begins is where an atomic cursor stood. Long lists
// are cut into chunks that are reduced by whoever is free and combined by atomics.
#ifndef TVM_SCATTER_GROUPED
#define TVM_SCATTER_GROUPED
#include "atomic.cuh"
#include "block_scan.cuh"
#include "row_sums.cuh"
#include "stages.cuh"

namespace tvm_scatter {

constexpr int kGroupThreads = 256;
constexpr int kRankItems = 4;  // items of one thread
constexpr int kRankSlots = kGroupThreads * kRankItems;
constexpr uint32 kNoPlace = ~0u;
// A list with more entries than this is reduced in chunks.
constexpr uint32 kLongList = 32;

// A destination with a long list, and the number of its first chunk among all chunks.
struct LongList {
  uint32 place, first_chunk;
};

// `cursors` and `counts` start as zeros.
struct Groups {
  uint64* cursors;  // entries listed; long lists (high half) with their chunks (low half)
  uint32* counts;   // updates of each place
  uint32* begins;   // where each place's list begins
  uint32* ranks;    // of each item in its list
  uint32* list;     // items, list after list
  uint32* slots;    // of each place that has one, its long list
  LongList* long_lists;

  __device__ __forceinline__ uint32 chunks() const { return static_cast<uint32>(cursors[1]); }
  __device__ __forceinline__ uint32 lists() const { return static_cast<uint32>(cursors[1] >> 32); }
};

// Count the updates of each place, and rank each among them. A block counts in a table of its own and
// then adds to the counts of all, so that a destination that takes every update does not queue them
// all; a place whose slot in the table another place has is counted among all at once.
template <class P>
__device__ __forceinline__ void rank_updates(const Groups& groups, const Indices<P>& indices,
                                             const Sizes<P>& sizes) {
  using Offset = typename P::Offset;
  __shared__ uint32 tags[kRankSlots];    // the place of each slot
  __shared__ uint32 met[kRankSlots];     // its updates in this block
  __shared__ uint32 before[kRankSlots];  // and in blocks that came first
  for (int i = threadIdx.x; i < kRankSlots; i += kGroupThreads) met[i] = 0;
  const int64 first = static_cast<int64>(blockIdx.x) * kRankSlots + threadIdx.x;
  RawIndex<P> raw[kRankItems];
  uint32 place[kRankItems], rank[kRankItems];
  bool tabled[kRankItems];
#pragma unroll
  for (int u = 0; u < kRankItems; ++u) {
    const int64 at = first + u * kGroupThreads;
    if (at < sizes.items())
      raw[u] = read_index(indices, Item<P>(sizes, static_cast<Offset>(at)).index);
  }
#pragma unroll
  for (int u = 0; u < kRankItems; ++u) {
    const int64 at = first + u * kGroupThreads;
    place[u] = kNoPlace;
    if (at >= sizes.items()) continue;
    const Offset found = place_of(static_cast<Offset>(at), raw[u], sizes);
    if (found >= sizes.destinations()) continue;
    place[u] = static_cast<uint32>(found);
    // Of several places for one slot any will do.
    atomicExch(&tags[place[u] % kRankSlots], place[u]);
  }
  __syncthreads();
#pragma unroll
  for (int u = 0; u < kRankItems; ++u) {
    if (place[u] == kNoPlace) continue;
    const uint32 slot = place[u] % kRankSlots;
    tabled[u] = tags[slot] == place[u];
    // Two calls and not one on either address, which the compiler would not know to be shared memory.
    if (tabled[u]) {
      rank[u] = atomicAdd(&met[slot], 1u);
    } else {
      rank[u] = atomicAdd(groups.counts + place[u], 1u);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kRankSlots; i += kGroupThreads)
    if (met[i]) before[i] = atomicAdd(groups.counts + tags[i], met[i]);
  __syncthreads();
#pragma unroll
  for (int u = 0; u < kRankItems; ++u)
    if (place[u] != kNoPlace)
      groups.ranks[first + u * kGroupThreads] =
          rank[u] + (tabled[u] ? before[place[u] % kRankSlots] : 0);
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
  const uint32 chunks = ceil_div(count, chunk);
  const uint64 taken = atomicAdd(groups.cursors + 1, (1ull << 32) | chunks);
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
  for_each_place<P, 4>(indices, sizes, [&](int64 at, Offset place) {
    if (place < sizes.destinations())
      groups.list[groups.begins[place] + groups.ranks[at]] = static_cast<uint32>(at);
  });
  fill(sums, widen(P::start()), static_cast<int64>(groups.lists()) * sizes.width());
}

// A group of lanes for each chunk of a long list.
template <class P, int lanes, int vector>
__device__ __forceinline__ void sum_long_lists(Accumulate<typename P::Data>* sums,
                                               const Groups& groups,
                                               const typename P::Data* updates,
                                               const Sizes<P>& sizes, uint32 chunk, int64 tiles) {
  using Offset = typename P::Offset;
  using Wide = Accumulate<typename P::Data>;
  using R = typename P::Reduction;
  const int64 teams = threads_in_grid() / lanes;
  const int64 work = static_cast<int64>(groups.chunks()) * tiles;
  const uint32 lists = groups.lists();
  const Offset width = sizes.width();
  const Offset lane = static_cast<Offset>(threadIdx.x % lanes) * vector;
  for (int64 team = first_in_grid() / lanes; team < work; team += teams) {
    const uint32 wanted = static_cast<uint32>(team / tiles);
    uint32 slot = 0, beyond = lists;  // the last list whose chunks begin at or before this one
    while (beyond - slot > 1) {
      const uint32 middle = (slot + beyond) / 2;
      (groups.long_lists[middle].first_chunk <= wanted ? slot : beyond) = middle;
    }
    const LongList found = groups.long_lists[slot];
    const uint32 first = (wanted - found.first_chunk) * chunk;
    const uint32 length = min(chunk, groups.counts[found.place] - first);
    const uint32* const items = groups.list + groups.begins[found.place] + first;
    for (Offset column = static_cast<Offset>(team % tiles) * lanes * vector + lane; column < width;
         column += static_cast<Offset>(tiles) * lanes * vector) {
      auto sum = splat<Wide, vector>(widen(P::start()));
      combine_run<R>(sum, length, ListedUpdates<P, uint32, vector>{updates, items, sizes, column});
      atomic_combine_vector<R, Wide, vector>(sums + static_cast<int64>(slot) * width + column, sum);
    }
  }
}

// A group of lanes for each row of the output, or for each of `tiles` parts of it.
template <class P, int lanes, int vector, bool mean, bool in_place>
__device__ __forceinline__ void write_rows(typename P::Data* out, const typename P::Data* data,
                                           const Accumulate<typename P::Data>* sums,
                                           const Groups& groups, const typename P::Data* updates,
                                           const Sizes<P>& sizes, int64 tiles) {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  using Wide = Accumulate<Data>;
  using R = typename P::Reduction;
  const RowShare<P, lanes, vector> share(tiles);
  if (share.row >= sizes.destinations()) return;
  const Offset width = sizes.width();
  for (Offset column = share.first; column < width; column += share.step) {
    const int64 at = share.row * width + column;
    Vector<Data, vector> result;
    // Before anything depends on the count, unless the data may not be needed at all.
    if constexpr (!in_place) result = load<Data, vector>(data + at);
    const uint32 count = groups.counts[share.row];
    if (in_place && count == 0) return;
    if (in_place && P::include_self) result = load<Data, vector>(data + at);
    if (count) {
      auto sum = splat<Wide, vector>(widen(P::start()));
      if (count > kLongList) {
        sum = load<Wide, vector>(sums + static_cast<int64>(groups.slots[share.row]) * width + column);
      } else {
        const uint32* const items = groups.list + groups.begins[share.row];
        combine_run<R>(sum, count, ListedUpdates<P, uint32, vector>{updates, items, sizes, column});
      }
#pragma unroll
      for (int i = 0; i < vector; ++i) {
        Wide value = sum.at[i];
        if constexpr (P::include_self) value = R::combine(widen(result.at[i]), value);
        if constexpr (mean) value = divide<Wide>(value, count + (P::include_self ? 1u : 0u));
        result.at[i] = narrow<Data>(value);
      }
    }
    store<Data, vector>(out + at, result);
  }
}

}  // namespace tvm_scatter
#endif
