// Bucketed reduction: the updates of each destination are listed through shared memory, and every
// output row is written once from its list or, if it has none, from the data.
//
// A bucket is a power of two of neighbouring places, few enough that one block can order its updates
// in shared memory. First every tile of updates is ordered by bucket, which leaves a run in each tile
// for each bucket; then a block for each bucket gathers its runs and orders them by place. Nothing is
// written to random addresses, and no counter is met by all. A bucket with too many updates for one
// block is cut into units, each of which is ordered and summed by whoever is free.
#ifndef TVM_SCATTER_BUCKETED
#define TVM_SCATTER_BUCKETED
#include "listed_rows.cuh"
#include "runs.cuh"

namespace tvm_scatter {

constexpr int kTileThreads = 512;
// Threads of a block that orders and sums a unit of a larger bucket.
constexpr int kUnitThreads = 256;
// In the count of a place whose sum is made in a slot.
constexpr uint32 kSummed = 1u << 31;

struct alignas(8) PlaceList {
  uint32 at, count;
};
struct alignas(16) ListPart {
  uint32 slot, begin, length, place;
};
// Where a unit begins, `skip` entries into the run of a tile, and the slot of its bucket's first place.
struct alignas(16) Unit {
  uint32 bucket, tile, skip, slot;
};

struct Taken {
  uint32 slot, part;
};

// `Entry` is what a list has of each update: which one it is, or what it carries of it. A bucket has two
// to the power of `known_bits` places, or, if that is negative, of what is given.
template <class Entry, int known_bits>
struct Buckets {
  using Key = Entry;
  uint64* cursors;  // entries listed; slots (high half) and parts (low half); units; turns taken
  unsigned short* runs;  // [bucket][tile]: where the run begins; after the last bucket, where it ends
  uint32* entries;  // tile after tile: which item of the tile (high bits), and its place in the bucket
  Entry* carried;   // of each of these, if lists carry something
  PlaceList* places;
  Entry* list;
  ListPart* parts;  // chunks of the long lists
  Unit* units;
  // `tile_items` is a power of two, and numbers of entries take 31 bits.
  uint32 tiles, tile_items;
  uint32 unit_items;
  uint32 given_bits;

  __device__ __forceinline__ int bits() const {
    return known_bits < 0 ? static_cast<int>(given_bits) : known_bits;
  }
  __device__ __forceinline__ int places_of_one() const { return 1 << bits(); }
  __device__ __forceinline__ unsigned short* runs_of(uint32 bucket) const {
    return runs + static_cast<int64>(bucket) * tiles;
  }
  __device__ __forceinline__ TileRuns tile_runs() const {
    return TileRuns{runs, entries, tiles, tile_items};
  }
  __device__ __forceinline__ Listed find(int64 place) const { return listed(places[place]); }
  // The same while others count: past the first cache, which would keep what was.
  __device__ __forceinline__ Listed find_anew(int64 place) const {
    return listed(look<PlaceList, 1>(places + place).at[0]);
  }
  // How a block names an update while it orders some: by its number, or by where it is carried.
  template <class P>
  __device__ __forceinline__ uint32 name_of(uint32 at, uint32 item_of_tile) const {
    return is_carried<P, Entry>() ? at : (at & ~(tile_items - 1)) + item_of_tile;
  }
  // What a list has of an update that is named so.
  template <class P>
  __device__ __forceinline__ Entry entry_of(uint32 name) const {
    if constexpr (is_carried<P, Entry>()) {
      return load_entry(carried[name]);
    } else {
      return name;
    }
  }
  template <class P>
  __device__ __forceinline__ auto named(const uint32* names) const {
    if constexpr (is_carried<P, Entry>()) {
      return Numbered<Entry>{carried, names};
    } else {
      return names;
    }
  }
  static __device__ __forceinline__ Listed listed(const PlaceList& found) {
    return Listed{found.count & ~kSummed, found.at, (found.count & kSummed) != 0};
  }
  // The first of so many slots and parts, which are the caller's from now on.
  __device__ __forceinline__ Taken take(uint32 slots, uint32 chunks) const {
    const uint64 taken = atomicAdd(cursors + 1, static_cast<uint64>(slots) << 32 | chunks);
    return Taken{static_cast<uint32>(taken >> 32), static_cast<uint32>(taken)};
  }
};

// What `counts[bin]` was before this thread's turn to count in it. For whole warps: lanes with the
// first lane's bin count at once, because shared memory takes those of one address one by one.
__device__ __forceinline__ uint32 count_in_turn(uint32* counts, uint32 bin) {
  const uint32 lane = threadIdx.x % kWarp;
  const uint32 peers = __ballot_sync(kAllLanes, bin == __shfl_sync(kAllLanes, bin, 0));
  const uint32 together = __popc(peers);
  if (together < 4) return atomicAdd(counts + bin, 1u);
  uint32 before = 0;
  if (lane == 0) before = atomicAdd(counts + bin, together);
  before = __shfl_sync(kAllLanes, before, 0);
  if (peers >> lane & 1) return before + __popc(peers & ((1u << lane) - 1));
  return atomicAdd(counts + bin, 1u);
}

// `counts` becomes where each of them begins, and in `counts[bins]` where the last one ends.
template <int threads>
__device__ __forceinline__ void scan_bins(uint32* counts, int bins) {
  const uint32 all = scan_in_block<threads>(counts, bins);
  if (threadIdx.x == 0) counts[bins] = all;
  __syncthreads();
}

// Order the entries of a tile by bucket. What lists carry is read `ahead`, with the indices, or in the
// end.
template <class P, int per_thread, bool ahead, class Entry, int known_bits>
__device__ __forceinline__ void order_tile(const Buckets<Entry, known_bits>& buckets,
                                           const Indices<P>& indices,
                                           const typename P::Updates& updates,
                                           const Sizes<P>& sizes, int count, char* shared) {
  using Offset = typename P::Offset;
  constexpr int kTile = kTileThreads * per_thread;
  const int bits = buckets.bits();
  static_assert(kTile <= kMostTileItems, "a block counts the entries of its tiles in a word");
  uint32* const ordered = reinterpret_cast<uint32*>(shared);
  Entry* const ordered_carried = reinterpret_cast<Entry*>(ordered + kTile);
  // Of each bucket, and of the updates that are dropped.
  uint32* const first = reinterpret_cast<uint32*>(ordered_carried + (ahead ? kTile : 0));
  if (blockIdx.x == 0 && threadIdx.x < 4) buckets.cursors[threadIdx.x] = 0;
  for (int b = threadIdx.x; b <= count; b += kTileThreads) first[b] = 0;
  const int64 begin = static_cast<int64>(blockIdx.x) * kTile;
  const Offset places = sizes.destinations();
  Offset place[per_thread];
  uint32 rank[per_thread];
  [[maybe_unused]] Entry carried[ahead ? per_thread : 1];
  if constexpr (ahead) {
    // What is past the end is read as the last item is, because reads do not wait for each other where
    // no branch is between them.
    const int64 last = static_cast<int64>(sizes.items()) - 1;
    if (last >= 0) {
#pragma unroll
      for (int i = 0; i < per_thread; ++i) {
        const int64 item = min(begin + threadIdx.x + i * kTileThreads, last);
        carried[i] = updates.carried(Item<P>(sizes, static_cast<Offset>(item)).update);
      }
    }
  }
  places_of<P>(place, begin + threadIdx.x, kTileThreads, indices, sizes);
  __syncthreads();
  auto bucket_of = [&](Offset at) { return at < places ? static_cast<int>(at >> bits) : count; };
#pragma unroll
  for (int i = 0; i < per_thread; ++i) rank[i] = count_in_turn(first, bucket_of(place[i]));
  __syncthreads();
  scan_bins<kTileThreads>(first, count);
  for (int b = threadIdx.x; b <= count; b += kTileThreads)
    buckets.runs_of(b)[blockIdx.x] = static_cast<unsigned short>(first[b]);
#pragma unroll
  for (int i = 0; i < per_thread; ++i) {
    if (place[i] >= places) continue;
    const uint32 in_bucket = static_cast<uint32>(place[i]) & ((1u << bits) - 1);
    const uint32 to = first[bucket_of(place[i])] + rank[i];
    ordered[to] = (threadIdx.x + i * kTileThreads) << bits | in_bucket;
    if constexpr (ahead) store_entry(ordered_carried + to, carried[i]);
  }
  __syncthreads();
  const int kept = first[count];
#pragma unroll 4
  for (int at = threadIdx.x; at < kept; at += kTileThreads) {
    buckets.entries[begin + at] = ordered[at];
    if constexpr (ahead) {
      store_entry(buckets.carried + begin + at, load_entry(ordered_carried[at]));
    } else if constexpr (is_carried<P, Entry>()) {
      // What is read here are neighbours in some order, which the first-level cache holds.
      const auto item = static_cast<Offset>(begin + (ordered[at] >> bits));
      store_entry(buckets.carried + begin + at, updates.carried(Item<P>(sizes, item).update));
    }
  }
}

// Shared memory of a block that orders up to `most` entries of one bucket, which has at most two to the
// power of `most_bits` places.
template <int most_bits, int threads, int most>
struct EntryRoom {
  uint32 items[most];
  unsigned short places[most];
  RunTable<threads, most> table;
  uint32 first[(1 << most_bits) + 1];  // of each place among the ordered items

  // See `RunTable::gather`.
  template <class P, class Entry, int known_bits>
  __device__ __forceinline__ uint32 gather(const Buckets<Entry, known_bits>& buckets, uint32 bucket,
                                           uint32 first_tile, uint32 skip, bool whole) {
    const TileRuns runs = buckets.tile_runs();
    const int bits = buckets.bits();
    uint32 begins = 0;
    return table.gather(runs, bucket, first_tile, skip, whole, begins,
                        [&](uint32 from) { return runs.entries[from]; },
                        [&](uint32 at, uint32 from, uint32 entry) {
                          put(at, entry, bits, buckets.template name_of<P>(from, entry >> bits));
                        });
  }

  // The same for a whole bucket and with what its entries carry, in whose numbers items are counted.
  template <class Entry, int known_bits>
  __device__ __forceinline__ uint32 gather_carried(const Buckets<Entry, known_bits>& buckets,
                                                   uint32 bucket, Entry* carried) {
    struct Read {
      uint32 entry;
      Entry carried;
    };
    const TileRuns runs = buckets.tile_runs();
    const int bits = buckets.bits();
    uint32 begins = 0;
    return table.gather(runs, bucket, 0, 0, true, begins,
                        [&](uint32 from) {
                          return Read{runs.entries[from], load_entry(buckets.carried[from])};
                        },
                        [&](uint32 at, uint32, const Read& read) {
                          put(at, read.entry, bits, at);
                          store_entry(carried + at, read.carried);
                        });
  }

  // Order the first `count` items by place, of which there are so many.
  __device__ __forceinline__ void order(uint32 count, int places_of_all) {
    for (int i = threadIdx.x; i <= places_of_all; i += threads) first[i] = 0;
    __syncthreads();
    constexpr int per_thread = most / threads;
    uint32 item[per_thread], place[per_thread], rank[per_thread];
#pragma unroll
    for (int u = 0; u < per_thread; ++u) {
      // Whole warps count together; lanes past the end do in a bin of their own.
      if (u * threads >= count) continue;
      const uint32 at = u * threads + threadIdx.x;
      place[u] = at < count ? places[at] : places_of_all;
      if (at < count) item[u] = items[at];
      rank[u] = count_in_turn(first, place[u]);
    }
    __syncthreads();
    scan_bins<threads>(first, places_of_all);
#pragma unroll
    for (int u = 0; u < per_thread; ++u)
      if (u * threads + threadIdx.x < count) items[first[place[u]] + rank[u]] = item[u];
    __syncthreads();
  }
  __device__ __forceinline__ uint32 count(int place) const { return first[place + 1] - first[place]; }

 private:
  __device__ __forceinline__ void put(uint32 at, uint32 entry, int bits, uint32 item) {
    items[at] = item;
    places[at] = static_cast<unsigned short>(entry & ((1u << bits) - 1));
  }
};

// Cut a bucket that one block cannot order into units, and begin the sums of its places.
template <class P, int threads, class Entry, int known_bits>
__device__ __forceinline__ void split_bucket(const Buckets<Entry, known_bits>& buckets,
                                             Accumulate<typename P::Data>* sums, uint32 bucket,
                                             int owned, uint32 found, const Sizes<P>& sizes) {
  __shared__ uint32 slot, unit;
  if (threadIdx.x == 0) {
    slot = buckets.take(owned, 0).slot;
    unit = static_cast<uint32>(
        atomicAdd(buckets.cursors + 2, static_cast<uint64>(ceil_div(found, buckets.unit_items))));
  }
  __syncthreads();
  PlaceList* const places = buckets.places + (static_cast<int64>(bucket) << buckets.bits());
  for (int i = threadIdx.x; i < owned; i += threads) places[i] = PlaceList{slot + i, kSummed};
  begin_sums(sums, slot, owned, sizes);
  const unsigned short* const runs = buckets.runs_of(bucket);
  uint32 carry = 0;
  for (uint32 start = 0; start < buckets.tiles; start += threads) {
    const uint32 tile = start + threadIdx.x;
    const uint32 length = tile < buckets.tiles ? runs[buckets.tiles + tile] - runs[tile] : 0;
    uint32 total;
    const uint32 before = carry + exclusive_in_block<threads>(length, total);
    const uint32 step = buckets.unit_items;
    for (uint32 u = ceil_div(before, step); u * step < before + length; ++u)
      buckets.units[unit + u] = Unit{bucket, tile, u * step - before, slot};
    carry += total;
  }
}

// One block for each bucket: list the items of each place, and cut long lists into chunks. A bucket with
// more than `most` entries is cut into units instead. What lists carry is `held` in shared memory
// meanwhile, where there is room.
template <class P, int most_bits, int threads, int most, bool held, class Entry, int known_bits>
__device__ __forceinline__ void list_bucket(const Buckets<Entry, known_bits>& buckets,
                                            Accumulate<typename P::Data>* sums,
                                            const Sizes<P>& sizes, uint32 chunk, char* shared) {
  using Room = EntryRoom<most_bits, threads, most>;
  Entry* const carried = reinterpret_cast<Entry*>(shared);
  auto& room = *reinterpret_cast<Room*>(carried + (held ? most : 0));
  __shared__ uint32 begin;
  __shared__ Taken taken;
  const uint32 bucket = blockIdx.x;
  const int64 first_place = static_cast<int64>(bucket) << buckets.bits();
  const int64 places = buckets.places_of_one();
  const int owned = static_cast<int>(
      max(min(static_cast<int64>(sizes.destinations()) - first_place, places), 0ll));
  uint32 found;
  if constexpr (held) {
    found = room.gather_carried(buckets, bucket, carried);
  } else {
    found = room.template gather<P>(buckets, bucket, 0, 0, true);
  }
  if (found > most) {
    split_bucket<P, threads>(buckets, sums, bucket, owned, found, sizes);
    return;
  }
  if (threadIdx.x == 0)
    begin = static_cast<uint32>(atomicAdd(buckets.cursors, static_cast<uint64>(found)));
  room.order(found, buckets.places_of_one());
#pragma unroll 4
  for (uint32 i = threadIdx.x; i < found; i += threads) {
    const uint32 item = room.items[i];
    store_entry(buckets.list + begin + i,
                held ? load_entry(carried[item]) : buckets.template entry_of<P>(item));
  }
  // A list of the usual length for its bucket delays nobody.
  const uint32 usual = 3 * found / max(owned, 1);
  const uint32 longest = max(kLongList, min(usual, chunk));
  bool has_long = false;
  for (int i = threadIdx.x; i < owned; i += threads) {
    buckets.places[first_place + i] = PlaceList{begin + room.first[i], room.count(i)};
    has_long |= room.count(i) > longest;
  }
  if (!__syncthreads_or(has_long)) return;
  for (int start = 0; start < owned; start += threads) {
    const int i = start + threadIdx.x;
    const uint32 count = i < owned ? room.count(i) : 0;
    const bool is_long = count > longest;
    const uint32 needed = is_long ? ceil_div(count, chunk) : 0;
    // Lists and chunks of a bucket are few enough to be counted in one word.
    uint32 total;
    const uint32 before = exclusive_in_block<threads>(is_long << 16 | needed, total);
    if (total == 0) continue;
    if (threadIdx.x == 0) taken = buckets.take(total >> 16, total & 0xffff);
    __syncthreads();
    if (is_long) {
      const uint32 slot = taken.slot + (before >> 16);
      buckets.places[first_place + i] = PlaceList{slot, count | kSummed};
      for (uint32 c = 0; c < needed; ++c)
        buckets.parts[taken.part + (before & 0xffff) + c] = ListPart{
            slot, begin + room.first[i] + c * chunk, min(chunk, count - c * chunk),
            static_cast<uint32>(first_place + i)};
    }
    begin_sums(sums, taken.slot, total >> 16, sizes);
    __syncthreads();
  }
}

// Sum the ordered entries of a unit: each group of lanes as many, so that all take equally long,
// whatever places they are of. Only the place that a group begins with can be that of many groups.
template <class P, int lanes, int vector, int columns, int most_bits, int most, class Entry,
          int known_bits>
__device__ __forceinline__ void sum_unit(const EntryRoom<most_bits, kUnitThreads, most>& room,
                                         Accumulate<typename P::Data>* sums,
                                         const Buckets<Entry, known_bits>& buckets, uint32 count,
                                         const Unit& unit, const typename P::Updates& updates,
                                         const Sizes<P>& sizes, int64 tile, int64 tiles) {
  using Offset = typename P::Offset;
  using R = typename P::Reduction;
  constexpr uint32 range = most * lanes / kUnitThreads;
  const uint32 begin = threadIdx.x / lanes * range, end = min(begin + range, count);
  const uint32 length = begin < end ? end - begin : 0;
  // The last place that begins at or before the first entry.
  uint32 first_place = 0;
  for (uint32 step = buckets.places_of_one() / 2; step > 0; step /= 2)
    if (room.first[first_place + step] <= begin) first_place += step;
  auto* const held = held_sums<P, vector * columns>();
  for_each_column<P, lanes, vector, columns>(sizes, tile, tiles, [&](const auto& own) {
    const auto start = splat<Accumulate<typename P::Data>, vector * columns>(widen(P::start()));
    auto sum = start;
    uint32 place = first_place;
    auto put_by = [&] {
      if (place == first_place) {
        held[threadIdx.x] = sum;
      } else {
        combine_columns<R>(sums + static_cast<int64>(unit.slot + place) * own.width, own, sum);
      }
    };
    if (own.first < own.width && length) {
      uint32 next = room.first[place + 1] - begin;
      const int64 first_row = static_cast<int64>(unit.bucket) << buckets.bits();
      const auto items = buckets.template named<P>(room.items + begin);
      using Key = typename If<is_carried<P, Entry>(), Numbered<Entry>, uint32>::type;
      PlaceColumns<P, Key, lanes, vector, columns, true, true, true> rows(
          updates, items, sizes, first_row + place, own);
      for_each_row(length, AsRead<decltype(rows)>{rows}, [&](uint32 at, const auto& read) {
        if (at == next) {
          put_by();
          do next = room.first[++place + 1] - begin;
          while (next <= at);
          sum = start;
          rows.go_to(first_row + place);
        }
        sum = combine_vectors<R>(sum, widen(rows.complete(read)));
      });
      put_by();
    }
    add_sums<P, lanes, vector, columns>(sums, length ? unit.slot + first_place : kNone, held, own);
  });
}

// Chunks of long lists, a group of lanes for each, and units of buckets that no block listed: turns
// that blocks take one after another, because no two take equally long.
template <class P, int lanes, int vector, int columns, int most_bits, int most, class Entry,
          int known_bits>
__device__ __forceinline__ void sum_slots(EntryRoom<most_bits, kUnitThreads, most>& room,
                                          Accumulate<typename P::Data>* sums,
                                          const Buckets<Entry, known_bits>& buckets,
                                          const typename P::Updates& updates, const Sizes<P>& sizes,
                                          int64 tiles) {
  __shared__ uint64 next;
  const uint32 parts = static_cast<uint32>(buckets.cursors[1]);
  const uint32 teams = kUnitThreads / lanes, team = threadIdx.x / lanes;
  const int64 shares = ceil_div(parts, teams);
  const int64 turns = (shares + static_cast<int64>(buckets.cursors[2])) * tiles;
  for (int64 work = blockIdx.x; work < turns; work = gridDim.x + static_cast<int64>(next)) {
    const int64 turn = work / tiles, tile = work - turn * tiles;
    if (turn < shares) {
      const int64 wanted = turn * teams + team;
      Chunk<Entry> found{kNone, 0, nullptr, 0};
      if (wanted < parts) {
        const ListPart part = buckets.parts[wanted];
        found = Chunk<Entry>{part.slot, part.length, buckets.list + part.begin, part.place};
      }
      add_chunks<P, lanes, vector, columns>(sums, found, updates, sizes, tile, tiles);
    } else {
      const Unit unit = buckets.units[turn - shares];
      const uint32 count = min(room.template gather<P>(buckets, unit.bucket, unit.tile, unit.skip, false),
                               static_cast<uint32>(most));
      const int all = buckets.places_of_one();
      room.order(count, all);
      // What the part of the first columns says holds for all.
      PlaceList* const places = buckets.places + (static_cast<int64>(unit.bucket) << buckets.bits());
      for (int i = threadIdx.x; tile == 0 && i < all; i += kUnitThreads)
        if (room.count(i)) atomicAdd(&places[i].count, room.count(i));
      sum_unit<P, lanes, vector, columns>(room, sums, buckets, count, unit, updates, sizes, tile,
                                                tiles);
    }
    // All have read the number of the last turn and what is in the room.
    __syncthreads();
    if (threadIdx.x == 0) next = atomicAdd(buckets.cursors + 3, 1ull);
    __syncthreads();
  }
}

}  // namespace tvm_scatter
#endif
