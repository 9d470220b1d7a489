// Segmented reduction in gather form: given the updates in the order of their destinations, every
// output row is written once, from its own segment or, if it has none, from the data.
//
// Segments with more than `longest` updates are cut into pieces, evenly, which are summed by whoever is
// free beside the short segments. Where there are many, their sums are added up together beforehand.
// At last each long row adds up sums in the order of the list, so the result depends on the list
// alone, and no row does more than a few hundred additions for each million.
#ifndef TVM_SCATTER_SEGMENTED
#define TVM_SCATTER_SEGMENTED
#include "ordering.cuh"
#include "place_updates.cuh"

namespace tvm_scatter {

// The logarithm of the fewest sums of pieces that are added up together beforehand.
constexpr int kTogetherBits = 5;
// Threads of a block that looks for long rows, and the most rows that it looks at, which are whole warps.
constexpr int kLongRowThreads = 256, kMostRowsOfBlock = 256;
static_assert(kMostRowsOfBlock <= kLongRowThreads && kMostRowsOfBlock % kWarp == 0);
// So many rows that a block looks at are neighbours: their begins are one access of the memory. The next
// ones are those of other blocks, because long rows may be neighbours as well.
constexpr int kRowsTogether = 8;
// Blocks that look at the same rows.
constexpr int kBlocksOfRows = 2;

// How entries [begin, end) are cut into pieces of `least` entries, a power of two, or a few more. Each
// has a slot, in which no other one is: `least` times the slot is the number of an entry among these.
struct Pieces {
  int64 begin, size, first_slot, count;

  __device__ __forceinline__ Pieces(int64 begin, int64 end, int bits)
      : begin(begin), size(end - begin), first_slot((begin + (1 << bits) - 1) >> bits),
        count((end - begin) >> bits) {}

  __device__ __forceinline__ bool has(int64 slot) const {
    return slot >= first_slot && slot < first_slot + count;
  }
  // Where the piece of a slot begins; that of the slot behind the last is the end.
  __device__ __forceinline__ int64 begin_of(int64 slot) const {
    const int64 piece = slot - first_slot;
    return begin + size / count * piece + min(piece, size % count);
  }
};

// The pieces of a segment, and what is made of many: pieces of the slots of these.
struct CutSegment {
  Pieces pieces, together;

  __device__ __forceinline__ CutSegment(int64 begin, int64 end, int bits)
      : pieces(begin, end, bits),
        together(pieces.first_slot, pieces.first_slot + pieces.count, kTogetherBits) {}

  __device__ __forceinline__ bool is_cut_again() const { return together.count > 1; }
};

// Where a segment begins and ends.
struct SegmentRange {
  int64 begin, end;

  // An order that the caller gives may be that of anything.
  template <class Key>
  static __device__ __forceinline__ SegmentRange of(const Key* begins, const Key* ends, int64 place,
                                                    int64 items) {
    return {max(static_cast<int64>(begins[place]), static_cast<int64>(0)),
            min(static_cast<int64>(ends[place]), items)};
  }
  __device__ __forceinline__ bool exceeds(uint32 longest) const {
    return end - begin > static_cast<int64>(longest);
  }
};

// Where the segment of each destination begins and ends; both arrays start as zeros.
template <class Key>
__device__ __forceinline__ void find_segments(Key* begins, Key* ends, const Key* keys, int64 size,
                                              Key dropped) {
  for (int64 at = first_in_grid(); at < size; at += threads_in_grid()) {
    const Key key = keys[at];
    if (key == dropped) continue;
    if (at == 0 || keys[at - 1] != key) begins[key] = static_cast<Key>(at);
    if (at + 1 == size || keys[at + 1] != key) ends[key] = static_cast<Key>(at + 1);
  }
}

// The keys of updates whose order is given: the place of each, or one past the last if it has none.
template <class P, class List>
struct OrderedKeys {
  const Indices<P>& indices;
  const List permutation;
  const Sizes<P>& sizes;

  __device__ __forceinline__ int operator[](int64 at) const {
    using Offset = typename P::Offset;
    const Item<P> item(sizes, static_cast<Offset>(permutation[at]));
    Offset destination;
    const bool has_place = find_destination(sizes, indices, item.index, destination);
    return static_cast<int>(has_place ? destination : sizes.destinations());
  }
};

// The same where nobody has the index: the last segment that begins at an update or before it.
template <class Key>
struct SearchedKeys {
  const Key* begins;
  int64 places;

  __device__ __forceinline__ Key operator[](int64 at) const {
    const int64 begun = keys_below(begins, places + 1, static_cast<Key>(at + 1));
    return static_cast<Key>(begun == 0 ? places : begun - 1);
  }
};

// Keys of the first entries of slots, which are all that is asked for.
template <class Key>
struct SlotKeys {
  const Key* found;
  int bits;

  __device__ __forceinline__ Key operator[](int64 at) const { return found[at >> bits]; }
};

// A search is a chain of reads. A thread for each slot, in a launch of its own, takes less time than the
// threads of all slots in front of rows, who would all wait for it.
template <class Key, class Keys>
__device__ __forceinline__ void find_keys_of_slots(Key* found, const Keys& keys, int64 slots, int bits) {
  for (int64 slot = first_in_grid(); slot < slots; slot += threads_in_grid())
    found[slot] = keys[slot << bits];
}

// Which columns of which row a thread has.
template <class P, int lanes, int vector>
using SegmentShare = typename If<(P::Updates::summed_columns > 0), LogitShare<P, lanes, vector>,
                                 RowShare<P, lanes, vector>>::type;

// Vectors as one access each, or element by element.
template <class P, bool whole, int vector>
__device__ __forceinline__ Vector<typename P::Data, vector> data_in_segments(
    const typename P::Data* data, int64 at) {
  if constexpr (whole) return data_at<P, vector>(data, at);
  Vector<typename P::Data, vector> result;
#pragma unroll
  for (int i = 0; i < vector; ++i) result.at[i] = data_at<P, 1>(data, at + i).at[0];
  return result;
}
template <class P, bool whole, int vector>
__device__ __forceinline__ void store_in_segments(const typename P::Output& output, int64 at,
                                                  const Vector<typename P::Data, vector>& value) {
  using Offset = typename P::Offset;
  if constexpr (whole) {
    output.template store<Offset>(at, value);
  } else {
#pragma unroll
    for (int i = 0; i < vector; ++i)
      output.template store<Offset>(at + i, Vector<typename P::Data, 1>{{value.at[i]}});
  }
}

// What a row is made of, and where it is written.
template <class P, int vector, bool whole, bool mean>
struct SegmentRows {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  const typename P::Output& output;
  const Data* data;
  const Sizes<P>& sizes;

  __device__ __forceinline__ int64 place(int64 row, Offset column) const {
    return row * sizes.width() + column;
  }
  // What stands in a row that has no updates.
  __device__ __forceinline__ void keep(int64 row, Offset column) const {
    if (!P::filled && output.holds(data)) return;
    const int64 at = place(row, column);
    store_in_segments<P, whole>(output, at, data_in_segments<P, whole, vector>(data, at));
  }
  __device__ __forceinline__ Vector<Data, vector> old(int64 row, Offset column) const {
    Vector<Data, vector> result;
    if constexpr (P::include_self)
      result = data_in_segments<P, whole, vector>(data, place(row, column));
    return result;
  }
  __device__ __forceinline__ void write(int64 row, Offset column, const Vector<Data, vector>& old,
                                        const RowSum<P, vector>& sum, int64 count) const {
    store_in_segments<P, whole>(output, place(row, column),
                                result_of<P, vector, mean>(old, sum, static_cast<uint32>(count)));
  }
};

// The segment to which an entry of the sorted list belongs, or none if nobody has it.
template <class P, class Key, class Keys>
__device__ __forceinline__ SegmentRange segment_of(const Keys& keys, int64 entry, const Key* begins,
                                                   const Key* ends, const Sizes<P>& sizes,
                                                   int64& place) {
  if (entry >= sizes.items()) return {0, 0};
  const Key key = keys[entry];
  if (key == static_cast<Key>(sizes.destinations())) return {0, 0};
  place = key;
  return SegmentRange::of(begins, ends, place, sizes.items());
}

// What is the same for all elements of the row of each update, in the order of the list.
template <class P, class Key>
__device__ __forceinline__ void carry_updates(typename P::Updates::Carried* carried,
                                              const typename P::Updates& updates, const Key* items,
                                              const Sizes<P>& sizes) {
  for (int64 at = first_in_grid(); at < sizes.items(); at += threads_in_grid()) {
    // Behind the last segment there may be anything.
    const uint64 last = static_cast<uint64>(sizes.items()) - 1;
    const auto item = static_cast<typename P::Offset>(min(static_cast<uint64>(items[at]), last));
    store_entry(carried + at, updates.carried(Item<P>(sizes, item).update));
  }
}

// A group of lanes for each slot of a piece, of which there are `slots`, and behind them for each
// `rows_each` rows, one after the other: the range of the next one is on its way meanwhile. Sums pieces
// of long segments, and writes rows that have short ones. `items` has an entry for each update: its
// number, or what is carried of it. `apart` as of `RowShare`.
template <class P, class Key, int lanes, int vector, bool whole, bool mean, bool first, bool apart,
          class Keys, class List>
__device__ __forceinline__ void sum_updates(Accumulate<typename P::Data>* to,
                                            const typename P::Output& output,
                                            const typename P::Data* data,
                                            const typename P::Updates& updates, const Keys& keys,
                                            const Key* begins, const Key* ends,
                                            const List items, const Sizes<P>& sizes,
                                            uint32 longest, int bits, int64 slots, int rows_each,
                                            int64 tiles) {
  using Entry = decltype(entry_of(items));
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  const int64 places = sizes.destinations();
  const int64 rows_apart = apart ? slots + ceil_div<int64>(places, rows_each) : 0;
  const SegmentShare<P, lanes, vector> share(sizes, tiles, first_in_grid() / lanes, rows_apart);
  const SegmentRows<P, vector, whole, mean> rows{output, data, sizes};
  const bool is_piece = share.row < slots;
  int64 place = (share.row - slots) * rows_each;
  int64 left = min(places - place, static_cast<int64>(rows_each));
  SegmentRange range;
  if (is_piece) {
    range = segment_of<P>(keys, share.row << bits, begins, ends, sizes, place);
    if (!range.exceeds(longest)) return;
    const Pieces pieces(range.begin, range.end, bits);
    if (!pieces.has(share.row)) return;
    range = {pieces.begin_of(share.row), pieces.begin_of(share.row + 1)};
    left = 1;
  } else {
    if (left <= 0) return;
    range = SegmentRange::of(begins, ends, place, sizes.items());
  }
  const Offset width = sizes.width();
  const auto sum_range = [&] {
    const int64 count = range.end - range.begin;
    for (Offset column = share.first; column < width; column += share.step) {
      if (count <= 0) {
        if (share.writes) rows.keep(place, column);
        continue;
      }
      Vector<Data, vector> old;
      if (!is_piece) old = rows.old(place, column);
      const auto own = own_of<P, vector, whole>(updates, place, column);
      const PlaceUpdates<P, Entry, lanes, vector, whole, false, first> sorted{
          {updates, items + range.begin, sizes, column}, own, share.writes};
      auto sum = sum_of_none<P, vector>();
      combine_updates(sum, static_cast<uint32>(count), sorted);
      if (!share.writes) continue;
      if (is_piece) {
        *reinterpret_cast<RowSum<P, vector>*>(to + place_of_sum<P>(sizes, share.row, column)) = sum;
      } else {
        rows.write(place, column, old, sum, count);
      }
    }
  };
  for (;;) {
    SegmentRange next;
    if (--left > 0) next = SegmentRange::of(begins, ends, place + 1, sizes.items());
    if (is_piece || !range.exceeds(longest)) sum_range();
    if (left <= 0) return;
    range = next;
    ++place;
  }
}

// For whole blocks: adds up `count` sums from a slot on, and visits each column of the result. One after
// the other, sums are waited for, so each group of lanes adds up a share of them, and the first one adds
// up what the groups have.
template <class P, int lanes, int vector, class Share, class Visit>
__device__ __forceinline__ void add_up(const Accumulate<typename P::Data>* sums, int64 slot,
                                       uint32 count, const Sizes<P>& sizes, const Share& share,
                                       Visit visit) {
  using Offset = typename P::Offset;
  using R = typename P::Reduction;
  // As many as there are with the most lanes, so that the order of additions is always the same.
  constexpr uint32 shares = kLongRowThreads / kWarp;
  __shared__ RowSum<P, vector> held[kLongRowThreads];
  const int64 width = sizes.width();
  const uint32 each = ceil_div(count, shares), skip = min(threadIdx.x / lanes * each, count);
  // The same turns for the whole block, so some columns may be beyond the width.
  for (int64 turn = 0; turn * share.step < width; ++turn) {
    const int64 column = share.first + turn * share.step;
    auto sum = sum_of_none<P, vector>();
    if (column < width)
      combine_run<R>(sum, min(each, count - skip),
                     ListedSums<P, vector>{sums, sizes, slot + skip, static_cast<Offset>(column)});
    held[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x < lanes && column < width && share.writes) {
      for (uint32 other = 1; other * each < count; ++other)
        add_row<R>(sum, held[threadIdx.x + other * lanes]);
      visit(static_cast<Offset>(column), sum);
    }
    __syncthreads();
  }
}

// For whole blocks: the sums of many pieces of one segment, a slot for each block.
template <class P, class Key, int lanes, int vector, bool whole, class Keys>
__device__ __forceinline__ void sum_together(Accumulate<typename P::Data>* to,
                                             const Accumulate<typename P::Data>* from,
                                             const Keys& keys, const Key* begins, const Key* ends,
                                             const Sizes<P>& sizes, uint32 longest, int bits,
                                             int64 tiles) {
  using Offset = typename P::Offset;
  const SegmentShare<P, lanes, vector> share(sizes, tiles, blockIdx.x);
  int64 place;
  const SegmentRange range = segment_of<P>(keys, share.row << (bits + kTogetherBits), begins, ends,
                                           sizes, place);
  if (!range.exceeds(longest)) return;
  const CutSegment cut(range.begin, range.end, bits);
  if (!cut.is_cut_again() || !cut.together.has(share.row)) return;
  const int64 begin = cut.together.begin_of(share.row);
  const uint32 count = static_cast<uint32>(cut.together.begin_of(share.row + 1) - begin);
  add_up<P, lanes, vector>(from, begin, count, sizes, share, [&](Offset column, const auto& sum) {
    *reinterpret_cast<RowSum<P, vector>*>(to + place_of_sum<P>(sizes, share.row, column)) = sum;
  });
}

// For whole blocks, each of which looks at some rows and writes those that have long segments. Some
// blocks look at the same rows, and take turns with those that they find.
template <class P, class Key, int lanes, int vector, bool whole, bool mean>
__device__ __forceinline__ void write_long(const Accumulate<typename P::Data>* pieces,
                                           const Accumulate<typename P::Data>* together,
                                           const typename P::Output& output,
                                           const typename P::Data* data, const Key* begins,
                                           const Key* ends, const Sizes<P>& sizes, uint32 longest,
                                           int bits, int rows_of_block, int64 groups, int64 tiles) {
  using Offset = typename P::Offset;
  __shared__ uint32 long_rows[kMostRowsOfBlock / kWarp];
  const SegmentShare<P, lanes, vector> share(sizes, tiles, blockIdx.x);
  const SegmentRows<P, vector, whole, mean> rows{output, data, sizes};
  const int64 group = share.row / kBlocksOfRows;
  const auto row_at = [&](uint32 at) {
    return (at / kRowsTogether * groups + group) * kRowsTogether + at % kRowsTogether;
  };
  if (threadIdx.x < rows_of_block) {
    const int64 row = row_at(threadIdx.x);
    const bool is_long = row < sizes.destinations() &&
                         SegmentRange::of(begins, ends, row, sizes.items()).exceeds(longest);
    const uint32 found = __ballot_sync(kAllLanes, is_long);
    if (threadIdx.x % kWarp == 0) long_rows[threadIdx.x / kWarp] = found;
  }
  __syncthreads();
  int64 turn = share.row - group * kBlocksOfRows;
  for (int part = 0; part < rows_of_block / kWarp; ++part) {
    for (uint32 left = long_rows[part]; left != 0; left &= left - 1) {
      if (turn-- != 0) continue;
      turn = kBlocksOfRows - 1;
      const int64 row = row_at(part * kWarp + __ffs(left) - 1);
      const SegmentRange range = SegmentRange::of(begins, ends, row, sizes.items());
      const CutSegment cut(range.begin, range.end, bits);
      const bool again = cut.is_cut_again();
      const Pieces& parts = again ? cut.together : cut.pieces;
      add_up<P, lanes, vector>(
          again ? together : pieces, parts.first_slot, static_cast<uint32>(parts.count), sizes, share,
          [&](Offset column, const auto& sum) {
            rows.write(row, column, rows.old(row, column), sum, range.end - range.begin);
          });
    }
  }
}

}  // namespace tvm_scatter
#endif
