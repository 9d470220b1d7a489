// Tiled reduction: updates are ordered by bucket within tiles, each bucket gathers its runs from the
// tiles, is reduced in shared memory, and written once.
//
// It is a partitioned reduction that counts nothing first: a tile leaves its runs where they are, so
// all that it writes is contiguous, and whoever reduces a bucket finds them by a table of where they
// begin. A bucket that has far more updates than others is cut into units. Blocks that are done with
// their buckets combine these into the output; sums of 16 bits in float32, which the last unit of a
// bucket rounds.
#ifndef TVM_SCATTER_TILED
#define TVM_SCATTER_TILED
#include "block_scan.cuh"
#include "grid.cuh"
#include "partition.cuh"
#include "run_marks.cuh"
#include "unit_list.cuh"

namespace tvm_scatter {

// Where a unit begins: so many updates into the run of a tile.
struct alignas(16) TiledUnit {
  uint32 bucket, tile, skip;
  uint32 slot;  // of the bucket, among those that are cut
};

constexpr uint32 kUncut = ~0u;  // no bucket has so many updates

// Whether units are combined in memory of their own.
template <class P>
constexpr bool kSumsApart = !same<typename P::Data, Accumulate<typename P::Data>> &&
                            !same<typename P::Reduction, Update>;

template <class Data>
struct Tiles {
  UnitList* list;
  unsigned short* runs;  // [tile][bucket]: where the run begins; after the last bucket, where it ends
  unsigned short* places;  // tile after tile, within their buckets
  Data* values;
  TiledUnit* units;
  // Of buckets that are cut, if units are combined apart: the bucket, and how many units are not.
  Accumulate<Data>* sums;
  uint32* unfinished;
  uint32 tiles, tile_items, buckets;
  uint32 unit_items;  // of a unit, and the most that one block reduces

  __device__ __forceinline__ unsigned short* runs_of(uint32 tile) const {
    return runs + static_cast<int64>(tile) * (buckets + 1);
  }
};

// Write `size` elements of shared memory, and up to one access more, to memory that has room for it.
template <class T>
__device__ __forceinline__ void write_whole(T* to, const T* from, int size) {
  constexpr int pack = 16 / sizeof(T);
  for (int at = threadIdx.x * pack; at < size; at += blockDim.x * pack)
    store<T, pack>(to + at, load<T, pack>(from + at));
}

// Calls `read(i)` for each `i` below `count` that is `inside`. There is no branch between the calls
// where `all` are, so that what they read is on its way together.
template <int count, class Inside, class Read>
__device__ __forceinline__ void read_inside(bool all, Inside inside, Read read) {
  if (all) {
#pragma unroll
    for (int i = 0; i < count; ++i) read(i);
  } else {
#pragma unroll
    for (int i = 0; i < count; ++i)
      if (inside(i)) read(i);
  }
}

// Order the updates of a tile by bucket.
template <class P, int bits, int threads, int per_thread>
__device__ __forceinline__ void order_values(const Tiles<typename P::Data>& tiles,
                                             const typename P::Updates& updates,
                                             const Indices<P>& indices, const Sizes<P>& sizes,
                                             char* shared) {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  constexpr int kTile = threads * per_thread;
  Data* const values = reinterpret_cast<Data*>(shared);
  uint32* const first = reinterpret_cast<uint32*>(values + kTile);  // of each bucket in the tile
  // Behind one number more than there are buckets, and aligned to an access.
  unsigned short* const places =
      reinterpret_cast<unsigned short*>(first + (tiles.buckets + 4) / 4 * 4);
  if (blockIdx.x == 0 && threadIdx.x == 0) *tiles.list = UnitList{};
  for (uint32 b = threadIdx.x; b <= tiles.buckets; b += threads) first[b] = 0;
  __syncthreads();

  const int64 begin = static_cast<int64>(blockIdx.x) * kTile;
  const Offset beyond = sizes.destinations();
  // Few at a time, because registers are what blocks share: two or three of them overlap.
  constexpr int in_flight = per_thread < 8 ? per_thread : 8;
  // Values that are read with the indices are there earlier, and hold registers meanwhile.
  constexpr bool early = per_thread <= in_flight;
  Offset place[per_thread];
  uint32 rank[per_thread];
  Data value[in_flight];
  // A block that is alone on a multiprocessor has all its reads on their way together, and they give
  // way first in the caches. Smaller ones overlap with others, and lost by either.
  constexpr bool alone = threads > 512;
  auto read_value = [&](int i) {
    const int64 at = begin + i * threads + threadIdx.x;
    const Offset update = Item<P>(sizes, static_cast<Offset>(at)).update;
    return alone ? updates.once(update) : updates[update];
  };
#pragma unroll
  for (int batch = 0; batch < per_thread; batch += in_flight) {
    RawIndex<P> raw[in_flight];
    read_inside<in_flight>(
        alone && begin + kTile <= sizes.items(),
        [&](int u) { return begin + (batch + u) * threads + threadIdx.x < sizes.items(); },
        [&](int u) {
          const int64 at = begin + (batch + u) * threads + threadIdx.x;
          raw[u] = read_index<P, alone>(indices, Item<P>(sizes, static_cast<Offset>(at)).index);
          if constexpr (early) value[u] = read_value(u);
        });
#pragma unroll
    for (int u = 0; u < in_flight; ++u) {
      const int64 at = begin + (batch + u) * threads + threadIdx.x;
      place[batch + u] =
          at < sizes.items() ? place_of(static_cast<Offset>(at), raw[u], sizes) : beyond;
    }
#pragma unroll
    for (int i = batch; i < batch + in_flight; ++i)
      if (place[i] < beyond) rank[i] = atomicAdd(&first[place[i] >> bits], 1u);
  }
  __syncthreads();
  const uint32 kept = scan_in_block<threads>(first, static_cast<int>(tiles.buckets));
  if (threadIdx.x == 0) first[tiles.buckets] = kept;
  __syncthreads();
  unsigned short* const runs = tiles.runs_of(blockIdx.x);
  for (uint32 b = threadIdx.x; b <= tiles.buckets; b += threads)
    runs[b] = static_cast<unsigned short>(first[b]);
#pragma unroll
  for (int batch = 0; batch < per_thread; batch += in_flight) {
#pragma unroll
    for (int u = 0; !early && u < in_flight; ++u)
      if (place[batch + u] < beyond) value[u] = read_value(batch + u);
#pragma unroll
    for (int u = 0; u < in_flight; ++u) {
      const Offset at = place[batch + u];
      if (at >= beyond) continue;
      const uint32 to = first[at >> bits] + rank[batch + u];
      places[to] = static_cast<unsigned short>(at & ((1u << bits) - 1));
      values[to] = value[u];
    }
  }
  __syncthreads();
  write_whole(tiles.values + begin, values, static_cast<int>(kept));
  write_whole(tiles.places + begin, places, static_cast<int>(kept));
}

// Shared memory of a block that gathers the updates of a bucket, a window of them at a time.
template <int threads>
struct RunRoom {
  static constexpr int words_each = 2;
  static constexpr int words = words_each * threads;
  static constexpr uint32 window = words * kWarp;
  RunMarks<words> marks;    // of the window
  uint32 origins[threads];  // where the updates of each run stand, less those of the runs before it
};

// Finds the updates of a bucket from `skip` updates after the beginning of a tile's run on. All calls
// are for whole blocks.
template <class Data, int threads>
struct Gather {
  using Room = RunRoom<threads>;
  const Tiles<Data>& tiles;
  Room& room;
  const uint32 bucket, first_tile, skip;
  uint32 left;                        // updates that are still wanted
  uint32 tile;                        // whose run is this thread's
  uint32 begin = 0, length = 0, before = 0;  // of that run: in the tile, and in the group of tiles
  uint32 window = 0, end = 0;         // updates of the group before the window, and of all wanted
  bool is_read = false;               // whether the next group's runs are there already

  __device__ __forceinline__ Gather(const Tiles<Data>& tiles, Room& room, uint32 bucket,
                                    uint32 first_tile, uint32 skip, uint32 most)
      : tiles(tiles), room(room), bucket(bucket), first_tile(first_tile), skip(skip), left(most),
        tile(first_tile + threadIdx.x - threads) {}

  __device__ __forceinline__ void read_run() {
    begin = length = 0;
    if (tile >= tiles.tiles) return;
    const unsigned short* const runs = tiles.runs_of(tile) + bucket;
    begin = runs[0];
    length = runs[1] - begin;
    if (tile == first_tile) begin += skip, length -= skip;
  }

  // Before anything else, this thread's share of all updates that there are. Nearly always the runs
  // that it reads are all, so `next` keeps those of the first group.
  __device__ __forceinline__ uint32 count_mine() {
    const uint32 first = tile;
    uint32 mine = 0;
    for (tile += threads * (ceil_div<uint32>(tiles.tiles - first_tile, threads));
         tile != first; tile -= threads) {
      read_run();
      mine += length;
    }
    is_read = true;
    return mine;
  }

  // Goes on to the next window, and returns how many updates it has: none at the end.
  __device__ __forceinline__ uint32 next() {
    window += Room::window;
    while (window >= end) {
      left -= end;
      tile += threads;
      if (left == 0 || tile - threadIdx.x >= tiles.tiles) return 0;
      if (!is_read) read_run();
      is_read = false;
      uint32 total;
      before = exclusive_in_block<threads>(length, total);
      window = 0;
      end = min(total, left);
    }
    mark_runs();
    return min(end - window, Room::window);
  }

  __device__ __forceinline__ void mark_runs() {
    __syncthreads();
    for (int w = threadIdx.x; w < Room::words; w += threads) room.marks.starts[w] = 0;
    __syncthreads();
    const uint32 first = max(before, window) - window;
    const bool inside = length > 0 && before + length > window && first < Room::window;
    if (inside) room.marks.begin_with(first);
    __syncthreads();
    uint32 runs = 0, all;
#pragma unroll
    for (int w = 0; w < Room::words_each; ++w)
      runs += __popc(room.marks.starts[threadIdx.x * Room::words_each + w]);
    uint32 earlier = exclusive_in_block<threads>(runs, all);
#pragma unroll
    for (int w = 0; w < Room::words_each; ++w) {
      const int word = threadIdx.x * Room::words_each + w;
      room.marks.earlier[word] = earlier;
      earlier += __popc(room.marks.starts[word]);
    }
    __syncthreads();
    if (inside) room.origins[room.marks.run_of(first)] = tile * tiles.tile_items + begin - before;
    __syncthreads();
  }

  // Where an update of the window stands.
  __device__ __forceinline__ uint32 find(uint32 at) const {
    return room.origins[room.marks.run_of(at)] + window + at;
  }

  // Calls `visit(place, value)` for the `size` updates of the window, some of which are read before
  // any is visited.
  template <int in_flight, class Visit>
  __device__ __forceinline__ void for_each(uint32 size, Visit visit) const {
    for (uint32 start = threadIdx.x; start < size; start += threads * in_flight) {
      unsigned short place[in_flight];
      Data value[in_flight];
#pragma unroll
      for (int u = 0; u < in_flight; ++u) {
        const uint32 at = start + u * threads;
        if (at >= size) continue;
        const uint32 from = find(at);
        place[u] = tiles.places[from];
        value[u] = tiles.values[from];
      }
#pragma unroll
      for (int u = 0; u < in_flight; ++u)
        if (start + u * threads < size) visit(place[u], value[u]);
    }
  }
};

// The part of shared memory that holds a bucket, and behind it the sums of its hot places. A thread
// has so many updates on their way: more take registers from other threads, which hide what each of
// them waits for.
template <class P, int bits, int in_flight>
struct HeldBucket {
  using Data = typename P::Data;
  using Wide = Accumulate<Data>;
  using R = typename P::Reduction;
  static constexpr int pack = 16 / sizeof(Data);
  Wide* held;

  __device__ __forceinline__ HotPlaces<Wide> hot() const {
    Wide* const sums = held + (1 << bits);
    return {reinterpret_cast<uint32*>(sums + HotPlaces<Wide>::slots * kWarp), sums};
  }

  __device__ __forceinline__ void read(const Data* from, int owned) const {
    int at = 0;
    if (aligned<Data, pack>(from)) {
      constexpr int reads = 2;  // as many as 32 registers allow
      const int whole = owned / pack * pack, step = blockDim.x * pack;
      for (at = threadIdx.x * pack; at < whole; at += step * reads) {
        Vector<Data, pack> read[reads];
#pragma unroll
        for (int u = 0; u < reads; ++u)
          if (at + u * step < whole) read[u] = load<Data, pack>(from + at + u * step);
#pragma unroll
        for (int u = 0; u < reads; ++u)
          if (at + u * step < whole) store<Wide, pack>(held + at + u * step, widen_bits(read[u]));
      }
      at = whole;
    }
    for (at += threadIdx.x; at < owned; at += blockDim.x) held[at] = widen_bits(from[at]);
  }
  __device__ __forceinline__ void write(Data* to, int owned) const {
    int at = 0;
    if (aligned<Data, pack>(to)) {
      for (at = threadIdx.x * pack; at + pack <= owned; at += blockDim.x * pack)
        store<Data, pack>(to + at, narrow_bits<Data, pack>(load<Wide, pack>(held + at)));
      at = owned / pack * pack;
    }
    for (at += threadIdx.x; at < owned; at += blockDim.x) to[at] = narrow_bits<Data>(held[at]);
  }

  // Combine all that `gather` finds.
  template <class Gather>
  __device__ __forceinline__ void combine(Gather& gather) const {
    bool skewed = false, is_first = true;
    while (const uint32 size = gather.next()) {
      if constexpr (same<R, Update>) {
        gather.template for_each<in_flight>(
            size, [&](uint32 place, Data value) { held[place] = value; });
      } else {
        if (is_first) skewed = find_hot(gather, size);
        is_first = false;
        // Two calls and not one on either address, which the compiler would not know to be shared.
        if (skewed) {
          gather.template for_each<in_flight>(size, [&](uint32 place, Data value) {
            if (hot().has(place)) {
              atomic_combine<R, Wide>(hot().sum(place), widen(value));
            } else {
              shared_combine<R, Wide>(held + place, widen(value));
            }
          });
        } else {
          gather.template for_each<in_flight>(size, [&](uint32 place, Data value) {
            shared_combine<R, Wide>(held + place, widen(value));
          });
        }
      }
    }
    __syncthreads();
    if (!skewed) return;
    hot().template merge<R>(held);
    __syncthreads();
  }

  // Looks at one update of the window for each thread; whether any place is hot.
  template <class Gather>
  __device__ __forceinline__ bool find_hot(const Gather& gather, uint32 size) const {
    const HotPlaces<Wide> found = hot();
    if (threadIdx.x < found.slots) found.tags[threadIdx.x] = found.none;
    for (uint32 i = threadIdx.x; i < found.slots * kWarp; i += blockDim.x)
      found.sums[i] = widen(P::start());
    __syncthreads();
    bool is_hot = false;
    if (size >= blockDim.x) {
      const uint32 place = gather.tiles.places[gather.find(size / blockDim.x * threadIdx.x)];
      // Three times among a warp's 32 updates is rare for a place with an even share.
      is_hot = __popc(__match_any_sync(kAllLanes, place)) > 2;
      // Of several for one slot any will do.
      if (is_hot) atomicExch(&found.tags[place % found.slots], place);
    }
    return __syncthreads_or(is_hot);
  }
};

template <class P, int bits>
__device__ __forceinline__ int owned_places(uint32 bucket, const Sizes<P>& sizes) {
  const int64 first = static_cast<int64>(bucket) << bits;
  return static_cast<int>(min(1ll << bits, static_cast<int64>(sizes.destinations()) - first));
}

// For whole blocks.
template <bool sums_apart, class Data>
__device__ __forceinline__ Claim cut_bucket(const Tiles<Data>& tiles, uint32 found) {
  __shared__ Claim claim;
  if (threadIdx.x == 0) {
    const uint32 units = ceil_div(found, tiles.unit_items);
    claim = claim_units(*tiles.list, units);
    if constexpr (sums_apart) tiles.unfinished[claim.slot] = units;
  }
  __syncthreads();
  return claim;
}

// List the units of a bucket. What they are combined into stands there already.
template <int threads, class Data>
__device__ __forceinline__ void list_units(const Tiles<Data>& tiles, uint32 bucket,
                                           const Claim& claim) {
  const uint32 step = tiles.unit_items;
  uint32 carry = 0;
  for (uint32 start = 0; start < tiles.tiles; start += threads) {
    const uint32 tile = start + threadIdx.x;
    uint32 length = 0, total;
    if (tile < tiles.tiles) {
      const unsigned short* const runs = tiles.runs_of(tile) + bucket;
      length = runs[1] - runs[0];
    }
    const uint32 before = carry + exclusive_in_block<threads>(length, total);
    for (uint32 u = ceil_div(before, step); u * step < before + length; ++u)
      tiles.units[claim.first + u] = TiledUnit{bucket, tile, u * step - before, claim.slot};
    carry += total;
  }
  __syncthreads();
  if (threadIdx.x == 0) publish_units(*tiles.list, claim);
}

// For whole blocks: whether no unit of the slot's bucket is left. The sums can be read then.
template <class Data>
__device__ __forceinline__ bool finishes_bucket(const Tiles<Data>& tiles, uint32 slot) {
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    is_last = atomicAdd(tiles.unfinished + slot, ~0u) == 1;
    __threadfence();
  }
  __syncthreads();
  return is_last;
}

// Combine units into `out`, which holds the data, or apart. They are taken as long as there are or may be
// any, and at least until none of the first `own` is left.
template <class P, int bits, int threads, int in_flight>
__device__ __forceinline__ void reduce_listed(
    typename P::Data* out, const HeldBucket<P, bits, in_flight>& bucket,
    const Tiles<typename P::Data>& tiles, RunRoom<threads>& room, const Sizes<P>& sizes,
    uint32 own) {
  using Data = typename P::Data;
  using R = typename P::Reduction;
  using Wide = Accumulate<Data>;
  __shared__ uint32 number;
  while (true) {
    __syncthreads();
    if (threadIdx.x == 0) {
      number = take_unit(*tiles.list, tiles.buckets, own);
      __threadfence();
    }
    __syncthreads();
    if (number == kNoUnit) return;
    const TiledUnit unit = tiles.units[number];
    Data* const to = out + (static_cast<int64>(unit.bucket) << bits);
    Gather<Data, threads> gather(tiles, room, unit.bucket, unit.tile, unit.skip, tiles.unit_items);
    if constexpr (same<R, Update>) {
      while (const uint32 size = gather.next())
        gather.template for_each<in_flight>(
            size, [&](uint32 place, Data value) { to[place] = value; });
    } else {
      const int owned = owned_places<P, bits>(unit.bucket, sizes);
      for (int i = threadIdx.x; i < owned; i += threads) bucket.held[i] = widen(P::start());
      bucket.combine(gather);
      if constexpr (kSumsApart<P>) {
        Wide* const sums = tiles.sums + (static_cast<int64>(unit.slot) << bits);
        for (int i = threadIdx.x; i < owned; i += threads)
          if (!is_start<P>(bucket.held[i])) atomic_combine<R, Wide>(sums + i, bucket.held[i]);
        if (finishes_bucket(tiles, unit.slot)) {
          for (int i = threadIdx.x; i < owned; i += threads) bucket.held[i] = sums[i];
          __syncthreads();
          bucket.write(to, owned);
        }
      } else {
        for (int i = threadIdx.x; i < owned; i += threads)
          if (!is_start<P>(bucket.held[i])) atomic_combine<R, Data>(to + i, bucket.held[i]);
      }
    }
  }
}

// One block for each bucket: reduce it in shared memory and write it; or copy it and list its units.
template <class P, int bits, int threads, int in_flight>
__device__ __forceinline__ void reduce_bucket(typename P::Data* out, const typename P::Data* data,
                                              const Tiles<typename P::Data>& tiles,
                                              const Sizes<P>& sizes, char* shared) {
  using Data = typename P::Data;
  __shared__ RunRoom<threads> room;
  const HeldBucket<P, bits, in_flight> bucket{reinterpret_cast<Accumulate<Data>*>(shared)};
  const int64 first = static_cast<int64>(blockIdx.x) << bits;
  const int owned = owned_places<P, bits>(blockIdx.x, sizes);
  const bool may_cut = tiles.unit_items != kUncut;
  if (may_cut && threadIdx.x == 0) begin_block(*tiles.list);
  Gather<Data, threads> gather(tiles, room, blockIdx.x, 0, 0, ~0u);
  const uint32 mine = gather.count_mine();
  uint32 found;
  // Before it is known whether it is wanted, so that both reads are on their way together.
  bucket.read(data + first, owned);
  exclusive_in_block<threads>(mine, found);
  uint32 own = 0;
  bool any_left = true;
  if (found <= tiles.unit_items) {
    if (may_cut && threadIdx.x == 0) decide_for_none(*tiles.list);
    bucket.combine(gather);
    // Looked at before the bucket is written, which takes longer.
    any_left = may_cut && threadIdx.x == 0 && may_have_units(*tiles.list, tiles.buckets);
    bucket.write(out + first, owned);
  } else {
    const Claim claim = cut_bucket<kSumsApart<P>>(tiles, found);
    if constexpr (kSumsApart<P>) {
      auto* const sums = tiles.sums + (static_cast<int64>(claim.slot) << bits);
      for (int i = threadIdx.x; i < owned; i += threads) sums[i] = bucket.held[i];
    } else if (out != data) {
      bucket.write(out + first, owned);
    }
    list_units<threads>(tiles, blockIdx.x, claim);
    own = claim.first + claim.units;
  }
  if (!may_cut || !__syncthreads_or(any_left)) return;
  reduce_listed<P, bits, threads, in_flight>(out, bucket, tiles, room, sizes, own);
}

}  // namespace tvm_scatter
#endif
