// The order of updates by destination through buckets: powers of two of neighbouring places, few
// enough that one block can order the updates of most buckets in shared memory.
//
// First every tile of updates is ordered by bucket, and stands as it is, with a table of where runs
// begin. What begins before a bucket in all tiles together is where the bucket begins in the
// permutation, so nothing is counted in advance. Then a block for each bucket gathers its runs, tile
// after tile, and orders them by place. Both orders are stable. A bucket with too many updates for
// one block is cut into units: their updates of each place are counted, those of some units together
// as well, and then each unit is ordered and moved behind the ones before it.
#ifndef TVM_SCATTER_BUCKET_ORDER
#define TVM_SCATTER_BUCKET_ORDER
#include "grid.cuh"
#include "place_updates.cuh"
#include "runs.cuh"
#include "stable_ranks.cuh"

namespace tvm_scatter {

constexpr int kBucketOrderThreads = 512;
// The most places of a bucket, unless there would be too many buckets.
constexpr int kBucketOrderPlaces = 512;
constexpr uint32 kUnitsTogether = 16;

// An order moves nothing with its updates but their numbers.
struct MovesNumbers {
  static constexpr bool moves = false;
};
// It moves what lists carry of each update as well: `by_tile` to where its entry stands, then `in_order`.
template <class Updates>
struct MovesCarried {
  static constexpr bool moves = true;
  const Updates& updates;
  typename Updates::Carried *by_tile, *in_order;
};

// A unit begins `skip` entries into the run of a tile. It is one of `units` of its bucket, which
// begins at `begin` in the permutation, and whose units begin with `first`.
struct OrderUnit {
  uint32 bucket, tile, skip, first, units, begin;
};

// All numbers take 32 bits, since there are no more than 4096 buckets.
//
// Bucket `buckets` is that of the updates that are dropped. An entry has its place in the bucket in
// the lowest `bits` bits, and its item of the tile in the others. A word has the item of all instead, or
// where the entry stands, if more is moved than numbers.
struct OrderBuckets {
  uint32* taken;  // units
  OrderUnit* units;
  uint32* counts;  // of each unit, entries of each place
  // The same of the first units of a bucket together, of the next ones, and so on. Those of a bucket
  // begin where its units begin, so that no others do.
  uint32* together;
  TileRuns runs;
  uint32 buckets;
  int bits;

  __device__ __forceinline__ uint32 places() const { return 1u << bits; }
  template <class Word>
  __device__ __forceinline__ uint32 place_of(Word word) const {
    return static_cast<uint32>(word) & (places() - 1);
  }
  // Of an entry that stands there.
  template <class Word, class Moves>
  __device__ __forceinline__ Word word_of(uint32 from, uint32 entry) const {
    if constexpr (Moves::moves) return (static_cast<Word>(from) << bits) + place_of(entry);
    return (static_cast<Word>(from & ~(runs.tile_items - 1)) << bits) + entry;
  }
  // Put an update where it belongs in the order.
  template <class Word, class Moves>
  __device__ __forceinline__ void put(int* permutation, uint32 to, Word word,
                                      const Moves& moves) const {
    const uint32 found = static_cast<uint32>(word >> bits);
    if constexpr (Moves::moves) {
      store_entry(moves.in_order + to, load_entry(moves.by_tile[found]));
      const Word own = word_of<Word, MovesNumbers>(found, runs.entries[found]);
      permutation[to] = static_cast<int>(own >> bits);
    } else {
      permutation[to] = static_cast<int>(found);
    }
  }
  __device__ __forceinline__ uint32 first_place(uint32 bucket) const { return bucket << bits; }
};

// Order the entries of a tile by bucket.
template <class P, int per_thread, int bucket_bits, class Moves>
__device__ __forceinline__ void order_tile_by_bucket(const OrderBuckets& order,
                                                     unsigned short* begins, uint32* entries,
                                                     const Indices<P>& indices,
                                                     const Sizes<P>& sizes, const Moves& moves,
                                                     char* shared) {
  using Offset = typename P::Offset;
  constexpr int kTile = kBucketOrderThreads * per_thread;
  static_assert(kTile <= kMostTileItems, "a block counts the entries of its tiles in a word");
  uint32* const ordered = reinterpret_cast<uint32*>(shared);
  // Items are ranked before they are put in order, in the same memory.
  const StableRanks<kBucketOrderThreads, per_thread, bucket_bits> ranks{
      reinterpret_cast<unsigned short*>(ordered + kTile), ordered,
      static_cast<int>(order.buckets) + 1};
  if (blockIdx.x == 0 && threadIdx.x == 0) *order.taken = 0;
  const int64 first = static_cast<int64>(blockIdx.x) * kTile;
  const uint32 owned = static_cast<uint32>(
      max(min(static_cast<int64>(sizes.items()) - first, static_cast<int64>(kTile)), 0ll));
  const Offset places = sizes.destinations();
  Offset found[per_thread];
  places_of<P>(found, first + number_in_block(0, per_thread), kWarp, indices, sizes);
  // What is dropped, or past the end, is of the first place behind all buckets.
  uint32 place[per_thread];
#pragma unroll
  for (int i = 0; i < per_thread; ++i)
    place[i] = found[i] < places ? static_cast<uint32>(found[i]) : order.first_place(order.buckets);
  Ranks<per_thread> rank;
  ranks.find(
      rank, per_thread, [&](int i) { return place[i] >> order.bits; },
      [&](uint32 bucket, uint32 begin) {
        begins[bucket * order.runs.tiles + blockIdx.x] =
            static_cast<unsigned short>(begin);
      });
  if (threadIdx.x == 0)
    begins[(order.buckets + 1) * order.runs.tiles + blockIdx.x] =
        static_cast<unsigned short>(owned);
  // What is past the end stands behind all that are.
#pragma unroll
  for (int i = 0; i < per_thread; ++i)
    ordered[rank[i]] = number_in_block(i, per_thread) << order.bits | order.place_of(place[i]);
  __syncthreads();
  for (uint32 at = threadIdx.x; at < owned; at += kBucketOrderThreads)
    entries[first + at] = ordered[at];
  if constexpr (Moves::moves) {
#pragma unroll 4
    for (uint32 at = threadIdx.x; at < owned; at += kBucketOrderThreads) {
      // What is read here are neighbours in some order, which the first-level cache holds.
      const Item<P> item(sizes, static_cast<Offset>(first + (ordered[at] >> order.bits)));
      store_entry(moves.by_tile + first + at, moves.updates.carried(item.update));
    }
  }
}

// Shared memory of a block that orders entries of a bucket or a unit, so many of each thread. Behind it
// is room for 16-bit counters, of each warp one for each place.
template <int per_thread, int place_bits, class Word, class Moves>
struct OrderRoom {
  // The most entries that a block orders: those of a whole bucket, or of a unit.
  static constexpr uint32 kMost = kBucketOrderThreads * per_thread;
  Word words[kMost];
  RunTable<kBucketOrderThreads, kMost> table;
  static constexpr int kPlaces =
      1 << place_bits > kBucketOrderPlaces ? 1 << place_bits : kBucketOrderPlaces;
  uint32 totals[kPlaces], before[kPlaces];  // used by who orders units

  __device__ __forceinline__ unsigned short* counters() {
    return reinterpret_cast<unsigned short*>(this + 1);
  }

  // See `RunTable::gather`.
  __device__ __forceinline__ uint32 gather(const OrderBuckets& order, uint32 bucket, uint32 tile,
                                           uint32 skip, bool whole, uint32& begins) {
    const TileRuns& runs = order.runs;
    return table.gather(runs, bucket, tile, skip, whole, begins,
                        [&](uint32 from) { return runs.entries[from]; },
                        [&](uint32 at, uint32 from, uint32 entry) {
                          words[at] = order.word_of<Word, Moves>(from, entry);
                        });
  }
  // The entries of a unit. Returns how many there are.
  __device__ __forceinline__ uint32 gather(const OrderBuckets& order, const OrderUnit& unit) {
    uint32 unused = 0;
    return min(gather(order, unit.bucket, unit.tile, unit.skip, false, unused), kMost);
  }

  // Order the first `count` words by place. `visit(place, first)` is called once for each place.
  template <class Visit>
  __device__ __forceinline__ void order_words(const OrderBuckets& order, uint32 count,
                                              Visit visit) {
    const int turns = static_cast<int>(ceil_div<uint32>(count, kBucketOrderThreads));
    Word word[per_thread];
    Ranks<per_thread> rank;
#pragma unroll
    for (int i = 0; i < per_thread; ++i) {
      if (i >= turns) continue;
      const uint32 at = number_in_block(i, turns);
      // What is past the end is of the last place, behind all that are.
      word[i] = at < count ? words[at] : ~static_cast<Word>(0);
    }
    // All have their words before these are the table of the ranks.
    __syncthreads();
    const StableRanks<kBucketOrderThreads, per_thread, place_bits> ranks{
        counters(), reinterpret_cast<uint32*>(words), static_cast<int>(order.places())};
    ranks.find(rank, turns, [&](int i) { return order.place_of(word[i]); }, visit);
#pragma unroll
    for (int i = 0; i < per_thread; ++i)
      if (i < turns && number_in_block(i, turns) < count) words[rank[i]] = word[i];
    __syncthreads();
  }
};

// Cut a bucket that one block cannot order into units of `most` entries.
__device__ __forceinline__ void cut_bucket(const OrderBuckets& order, uint32 bucket, uint32 found,
                                           uint32 begin, uint32 most) {
  __shared__ uint32 first;
  const uint32 units = ceil_div(found, most);
  if (threadIdx.x == 0) first = atomicAdd(order.taken, units);
  __syncthreads();
  const uint32 sums = ceil_div(units, kUnitsTogether) << order.bits;
  for (uint32 at = threadIdx.x; at < sums; at += kBucketOrderThreads)
    order.together[(first << order.bits) + at] = 0;
  const TileRuns& runs = order.runs;
  const unsigned short* const own = runs.begins + static_cast<int64>(bucket) * runs.tiles;
  uint32 carry = 0;
  for (uint32 start = 0; start < runs.tiles; start += kBucketOrderThreads) {
    const uint32 tile = start + threadIdx.x;
    const uint32 length = tile < runs.tiles ? own[runs.tiles + tile] - own[tile] : 0;
    uint32 total;
    const uint32 before = carry + exclusive_in_block<kBucketOrderThreads>(length, total);
    for (uint32 u = ceil_div(before, most); u * most < before + length; ++u)
      order.units[first + u] = OrderUnit{bucket, tile, u * most - before, first, units, begin};
    carry += total;
  }
}

// One block for each bucket, and one for the updates that are dropped. `unit` as of who orders units.
template <class P, int per_thread, int place_bits, class Word, int unit, class Moves>
__device__ __forceinline__ void order_bucket(int* permutation, int* offsets,
                                             const OrderBuckets& order, const Sizes<P>& sizes,
                                             const Moves& moves, char* shared) {
  auto& room = *reinterpret_cast<OrderRoom<per_thread, place_bits, Word, Moves>*>(shared);
  const uint32 bucket = blockIdx.x;
  uint32 begins = 0, begin;
  const uint32 found = room.gather(order, bucket, 0, 0, true, begins);
  exclusive_in_block<kBucketOrderThreads>(begins, begin);
  const uint32 places = sizes.destinations();
  if (bucket == order.buckets && threadIdx.x == 0) offsets[places] = begin;
  if (found > room.kMost) {
    cut_bucket(order, bucket, found, begin, OrderRoom<unit, place_bits, Word, Moves>::kMost);
    return;
  }
  const uint32 first_place = order.first_place(bucket);
  room.order_words(order, found, [&](uint32 place, uint32 first) {
    if (first_place + place < places) offsets[first_place + place] = begin + first;
  });
  for (uint32 at = threadIdx.x; at < found; at += kBucketOrderThreads)
    order.put(permutation, begin + at, room.words[at], moves);
}

// Count the entries of each place in all units, and in some together.
template <int per_thread, int place_bits, class Word>
__device__ __forceinline__ void count_units(const OrderBuckets& order, char* shared) {
  auto& room = *reinterpret_cast<OrderRoom<per_thread, place_bits, Word, MovesNumbers>*>(shared);
  const uint32 units = *order.taken;
  for (uint32 number = blockIdx.x; number < units; number += gridDim.x) {
    const OrderUnit& unit = order.units[number];
    for (uint32 p = threadIdx.x; p < order.places(); p += kBucketOrderThreads) room.totals[p] = 0;
    const uint32 count = room.gather(order, unit);
    for (uint32 at = threadIdx.x; at < count; at += kBucketOrderThreads)
      atomicAdd(&room.totals[order.place_of(room.words[at])], 1u);
    __syncthreads();
    const uint32 sum = unit.first + (number - unit.first) / kUnitsTogether;
    for (uint32 p = threadIdx.x; p < order.places(); p += kBucketOrderThreads) {
      const uint32 total = room.totals[p];
      order.counts[(number << order.bits) + p] = total;
      if (total != 0) atomicAdd(&order.together[(sum << order.bits) + p], total);
    }
    __syncthreads();
  }
}

// For each place of a unit's bucket: `totals` become the entries of all units, `before` those of the
// ones before this.
template <class Room>
__device__ __forceinline__ void add_counts(Room& room, const OrderBuckets& order,
                                           const OrderUnit& unit, uint32 number) {
  for (uint32 p = threadIdx.x; p < order.places(); p += kBucketOrderThreads)
    room.totals[p] = room.before[p] = 0;
  __syncthreads();
  // A place has several threads, or a thread several places.
  const uint32 turn = threadIdx.x >> order.bits;
  const uint32 turns = max(kBucketOrderThreads >> order.bits, 1);
  const uint32 own = number - unit.first, sum = own / kUnitsTogether;
  for (uint32 place = order.place_of(threadIdx.x); place < order.places();
       place += kBucketOrderThreads) {
    const uint32 begin = (unit.first << order.bits) + place;
    uint32 all = 0, earlier = 0;
#pragma unroll 8
    for (uint32 s = turn; s < ceil_div(unit.units, kUnitsTogether); s += turns) {
      const uint32 count = order.together[begin + (s << order.bits)];
      all += count;
      if (s < sum) earlier += count;
    }
#pragma unroll 8
    for (uint32 u = sum * kUnitsTogether + turn; u < own; u += turns)
      earlier += order.counts[begin + (u << order.bits)];
    atomicAdd(&room.totals[place], all);
    atomicAdd(&room.before[place], earlier);
  }
  __syncthreads();
}

// Order every unit, and move its entries behind those of the units before it.
template <class P, int per_thread, int place_bits, class Word, class Moves>
__device__ __forceinline__ void order_units(int* permutation, int* offsets,
                                            const OrderBuckets& order, const Sizes<P>& sizes,
                                            const Moves& moves, char* shared) {
  auto& room = *reinterpret_cast<OrderRoom<per_thread, place_bits, Word, Moves>*>(shared);
  const uint32 units = *order.taken;
  const uint32 places = sizes.destinations();
  for (uint32 number = blockIdx.x; number < units; number += gridDim.x) {
    const OrderUnit& unit = order.units[number];
    add_counts(room, order, unit, number);
    scan_in_block<kBucketOrderThreads>(room.totals, order.places());
    __syncthreads();
    for (uint32 p = threadIdx.x; p < order.places(); p += kBucketOrderThreads) {
      const uint32 begin = unit.begin + room.totals[p];
      const uint32 place = order.first_place(unit.bucket) + p;
      if (number == unit.first && place < places) offsets[place] = begin;
      room.before[p] += begin;
    }
    const uint32 count = room.gather(order, unit);
    // From a number in the ordered unit to one in the permutation.
    room.order_words(order, count,
                     [&](uint32 place, uint32 first) { room.before[place] -= first; });
    for (uint32 at = threadIdx.x; at < count; at += kBucketOrderThreads) {
      const Word word = room.words[at];
      order.put(permutation, room.before[order.place_of(word)] + at, word, moves);
    }
    __syncthreads();
  }
}

}  // namespace tvm_scatter
#endif
