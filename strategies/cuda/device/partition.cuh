// Partitioned reduction: updates are moved into buckets of neighbouring destinations, each bucket is
// reduced in shared memory and written once. Random 4-byte writes to memory become streams.
#ifndef TVM_SCATTER_PARTITION
#define TVM_SCATTER_PARTITION
#include "atomic.cuh"
#include "block_scan.cuh"
#include "grid.cuh"

namespace tvm_scatter {

constexpr int kPartitionThreads = 1024;
constexpr int kMostBuckets = 2048;

template <class P, int bucket_bits>
__device__ __forceinline__ void count_buckets(uint32* counts, const Indices<P>& indices,
                                              const Sizes<P>& sizes, int buckets) {
  using Offset = typename P::Offset;
  __shared__ uint32 seen[kMostBuckets];
  for (int b = threadIdx.x; b < buckets; b += blockDim.x) seen[b] = 0;
  __syncthreads();
  for_each_place<P, 8>(indices, sizes, [&](int64, Offset place) {
    if (place < sizes.destinations()) atomicAdd(&seen[place >> bucket_bits], 1u);
  });
  __syncthreads();
  for (int b = threadIdx.x; b < buckets; b += blockDim.x)
    if (seen[b]) atomicAdd(counts + b, seen[b]);
}

// One block: where each bucket's updates begin, and which units of work it is cut into. A bucket
// always has at least one unit, which copies its data.
__device__ __forceinline__ void plan_buckets(uint32* begins, uint32* cursors, uint32* first_units,
                                             const uint32* counts, int buckets, uint32 unit) {
  uint32 items = 0, units = 0;
  for (int start = 0; start < buckets; start += kPartitionThreads) {
    const int b = start + threadIdx.x;
    const uint32 count = b < buckets ? counts[b] : 0;
    const uint32 needed = b < buckets ? max(1u, ceil_div(count, unit)) : 0;
    uint32 all_items, all_units;
    const uint32 items_before = exclusive_in_block<kPartitionThreads>(count, all_items);
    const uint32 units_before = exclusive_in_block<kPartitionThreads>(needed, all_units);
    if (b < buckets) {
      begins[b] = cursors[b] = items + items_before;
      first_units[b] = units + units_before;
    }
    items += all_items;
    units += all_units;
  }
  if (threadIdx.x == 0) {
    begins[buckets] = items;
    first_units[buckets] = units;
  }
}

// Move a tile of updates into the buckets: ordered by bucket in shared memory first, so that runs of
// neighbouring threads write to neighbouring addresses.
template <class P, int bucket_bits, int per_thread>
__device__ __forceinline__ void fill_buckets(unsigned short* places_to, typename P::Data* values_to,
                                             uint32* cursors, const typename P::Updates& updates,
                                             const Indices<P>& indices, const Sizes<P>& sizes,
                                             int buckets, char* shared) {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  constexpr int kTile = kPartitionThreads * per_thread;
  // The values stand first, because they may need the widest alignment.
  Data* const values = reinterpret_cast<Data*>(shared);
  uint32* const places = reinterpret_cast<uint32*>(values + kTile);
  uint32* const first = places + kTile;  // of each bucket in the tile; before that, how many
  uint32* const moved = first + buckets;          // from a rank in the tile to one in all buckets
  for (int b = threadIdx.x; b < buckets; b += kPartitionThreads) first[b] = 0;
  __syncthreads();

  const int64 begin = static_cast<int64>(blockIdx.x) * kTile;
  RawIndex<P> raw[per_thread];
  Offset place[per_thread];
  Data value[per_thread];
  uint32 rank[per_thread];
#pragma unroll
  for (int i = 0; i < per_thread; ++i) {
    const int64 at = begin + i * kPartitionThreads + threadIdx.x;
    if (at >= sizes.items()) continue;
    const Item<P> item(sizes, static_cast<Offset>(at));
    raw[i] = read_index(indices, item.index);
    value[i] = updates[item.update];
  }
#pragma unroll
  for (int i = 0; i < per_thread; ++i) {
    const int64 at = begin + i * kPartitionThreads + threadIdx.x;
    place[i] = at < sizes.items() ? place_of(static_cast<Offset>(at), raw[i], sizes)
                                  : sizes.destinations();
  }
#pragma unroll
  for (int i = 0; i < per_thread; ++i)
    if (place[i] < sizes.destinations()) rank[i] = atomicAdd(&first[place[i] >> bucket_bits], 1u);
  __syncthreads();
  const uint32 kept = scan_in_block<kPartitionThreads>(first, buckets, [=](int bucket, uint32 count) {
    moved[bucket] = (count ? atomicAdd(cursors + bucket, count) : 0) - first[bucket];
  });
  __syncthreads();
#pragma unroll
  for (int i = 0; i < per_thread; ++i) {
    if (place[i] >= sizes.destinations()) continue;
    const uint32 to = first[place[i] >> bucket_bits] + rank[i];
    places[to] = static_cast<uint32>(place[i]);
    values[to] = value[i];
  }
  __syncthreads();
  for (uint32 at = threadIdx.x; at < kept; at += kPartitionThreads) {
    const uint32 to = moved[places[at] >> bucket_bits] + at;
    places_to[to] = static_cast<unsigned short>(places[at] & ((1u << bucket_bits) - 1));
    values_to[to] = values[at];
  }
}

// A bucket of several units is combined into `out` by several blocks, so `out` must hold the data.
template <class P, int bucket_bits>
__device__ __forceinline__ void copy_shared_buckets(typename P::Data* out,
                                                    const typename P::Data* data,
                                                    const uint32* first_units,
                                                    const Sizes<P>& sizes) {
  const int bucket = blockIdx.x;
  if (first_units[bucket + 1] - first_units[bucket] < 2) return;
  const int64 begin = static_cast<int64>(bucket) << bucket_bits;
  const int64 end = min(begin + (1ll << bucket_bits), static_cast<int64>(sizes.destinations()));
  for (int64 at = begin + threadIdx.x; at < end; at += blockDim.x) out[at] = data[at];
}

// Places that many updates go to have a copy for each lane: shared memory takes the updates of one
// address one after another.
template <class Wide>
struct HotPlaces {
  static constexpr uint32 slots = 64;
  static constexpr uint32 none = ~0u;
  uint32* tags;  // the place of each slot
  Wide* sums;    // `kWarp` for each slot

  // Looks at one update for each thread; whether any place has a slot. For whole blocks.
  template <class P>
  __device__ __forceinline__ bool find(const unsigned short* places, uint32 count) const {
    if (threadIdx.x < slots) tags[threadIdx.x] = none;
    for (uint32 i = threadIdx.x; i < slots * kWarp; i += blockDim.x) sums[i] = widen(P::start());
    __syncthreads();
    bool found = false;
    if (count >= blockDim.x) {
      const uint32 place = places[count / blockDim.x * threadIdx.x];
      // Three times among a warp's 32 updates is rare for a place with an even share.
      found = __popc(__match_any_sync(kAllLanes, place)) > 2;
      // Of several for one slot any will do.
      if (found) atomicExch(&tags[place % slots], place);
    }
    return __syncthreads_or(found);
  }

  __device__ __forceinline__ bool has(uint32 place) const { return tags[place % slots] == place; }
  __device__ __forceinline__ Wide* sum(uint32 place) const {
    return sums + place % slots * kWarp + threadIdx.x % kWarp;
  }
  // Combine the sums into the places themselves. For whole blocks.
  template <class R>
  __device__ __forceinline__ void merge(Wide* held) const {
    const int lane = threadIdx.x % kWarp;
    for (uint32 slot = threadIdx.x / kWarp; slot < slots; slot += blockDim.x / kWarp) {
      if (tags[slot] == none) continue;
      const Wide sum = combine_lanes<R>(sums[slot * kWarp + lane]);
      if (lane == 0) shared_combine<R, Wide>(held + tags[slot], sum);
    }
  }
};

// One block for each unit: reduce in shared memory, then write the bucket, or combine into it.
template <class P, int bucket_bits>
__device__ __forceinline__ void reduce_units(typename P::Data* out, const typename P::Data* data,
                                             const unsigned short* places,
                                             const typename P::Data* values, const uint32* begins,
                                             const uint32* first_units, const Sizes<P>& sizes,
                                             int buckets, uint32 unit, char* shared) {
  using Data = typename P::Data;
  using Wide = Accumulate<Data>;
  using R = typename P::Reduction;
  Wide* const held = reinterpret_cast<Wide*>(shared);
  if (blockIdx.x >= first_units[buckets]) return;
  int low = 0, high = buckets - 1;  // the last bucket that begins at or before this unit
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (first_units[middle] <= blockIdx.x) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const int bucket = low;
  const bool alone = first_units[bucket + 1] - first_units[bucket] == 1;
  const int64 first = static_cast<int64>(bucket) << bucket_bits;
  const int owned =
      static_cast<int>(min(1ll << bucket_bits, static_cast<int64>(sizes.destinations()) - first));
  for (int i = threadIdx.x; i < owned; i += blockDim.x)
    held[i] = widen_bits(alone ? data[first + i] : P::start());
  __syncthreads();
  const uint32 begin = begins[bucket] + (blockIdx.x - first_units[bucket]) * unit;
  const uint32 end = min(begin + unit, begins[bucket + 1]);
  Wide* const hot_sums = held + (1 << bucket_bits);
  const HotPlaces<Wide> hot{reinterpret_cast<uint32*>(hot_sums + HotPlaces<Wide>::slots * kWarp),
                            hot_sums};
  const bool skewed = hot.template find<P>(places + begin, end - begin);
  auto for_each_update = [&](auto combine) {
    constexpr int kUnroll = 8;
    for (uint32 start = begin + threadIdx.x; start < end; start += blockDim.x * kUnroll) {
      unsigned short place[kUnroll];
      Data value[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const uint32 at = start + u * blockDim.x;
        if (at >= end) continue;
        place[u] = places[at];
        value[u] = values[at];
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        if (start + u * blockDim.x < end) combine(place[u], widen(value[u]));
    }
  };
  if (skewed) {
    // Two calls and not one on either address, which the compiler would not know to be shared memory.
    for_each_update([&](uint32 place, Wide value) {
      if (hot.has(place)) {
        atomic_combine<R, Wide>(hot.sum(place), value);
      } else {
        shared_combine<R, Wide>(held + place, value);
      }
    });
  } else {
    for_each_update([&](uint32 place, Wide value) { shared_combine<R, Wide>(held + place, value); });
  }
  __syncthreads();
  if (skewed) hot.template merge<R>(held);
  __syncthreads();
  for (int i = threadIdx.x; i < owned; i += blockDim.x) {
    if (alone) {
      out[first + i] = narrow_bits<Data>(held[i]);
    } else if (!is_start<P>(held[i])) {
      atomic_combine<R, Data>(out + first + i, narrow<Data>(held[i]));
    }
  }
}

}  // namespace tvm_scatter
#endif
