// Segmented reduction in gather form: given the updates in the order of their destinations, every
// output row is written once, from its own segment or, if it has none, from the data.
//
// Segments with more than `longest` updates are cut into pieces, evenly, which are summed by whoever is
// free beside the short segments. Of some neighbours, the last one to be ready adds up the sums of all,
// and so on, until one has the sum of the row. Sums are added up in the order of the list, so the result
// depends on the list alone.
#ifndef TVM_SCATTER_SEGMENTED
#define TVM_SCATTER_SEGMENTED
#include "ordering.cuh"
#include "place_columns.cuh"

namespace tvm_scatter {

// The logarithm of the fewest sums that are added up together.
constexpr int kTogetherBits = 3;

// How entries [begin, end) are cut into pieces of `least` entries, a power of two, or a few more. Each
// has a slot, in which no other one is: `least` times the slot is the number of an entry among these.
template <class T>
struct Pieces {
  T begin, size;
  uint32 first_slot, count;

  __device__ __forceinline__ Pieces(T begin, T end, int bits)
      : begin(begin), size(end - begin),
        first_slot(static_cast<uint32>((begin + (T(1) << bits) - 1) >> bits)),
        count(static_cast<uint32>((end - begin) >> bits)) {}

  __device__ __forceinline__ bool has(int64 slot) const {
    return slot >= first_slot && slot < static_cast<int64>(first_slot) + count;
  }
  // Where the piece of a slot begins; that of the slot behind the last is the end.
  __device__ __forceinline__ T begin_of(uint32 slot) const {
    const T piece = slot - first_slot;
    return begin + size / count * piece + min(piece, size % count);
  }
  // The slot of the piece that has an entry. The first pieces may have one entry more than others.
  __device__ __forceinline__ uint32 slot_of(T entry) const {
    const T least = size / count, longer = size % count, at = entry - begin;
    const T piece = at < longer * (least + 1) ? at / (least + 1) : (at - longer) / least;
    return first_slot + static_cast<uint32>(piece);
  }
};

// Where a segment begins and ends.
struct SegmentRange {
  int64 begin, end;

  // An order that the caller gives may be that of anything.
  static __device__ __forceinline__ SegmentRange of(int64 begin, int64 end, int64 items) {
    return {max(begin, static_cast<int64>(0)), min(end, items)};
  }
  template <class Key>
  static __device__ __forceinline__ SegmentRange of(const Key* begins, const Key* ends, int64 place,
                                                    int64 items) {
    return of(begins[place], ends[place], items);
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
    typename P::Offset place[1];
    places_of<P>(place, permutation[at], 1, indices, sizes);
    return static_cast<int>(place[0]);
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
template <class P, int lanes, int vector, int columns = 1>
using SegmentShare = typename If<(P::Updates::summed_columns > 0), LogitShare<P, lanes, vector>,
                                 RowShare<P, lanes, vector, columns>>::type;

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

// The same of all columns of a thread.
template <class P, int lanes, int vector, int columns, bool whole, bool mean>
struct SegmentColumns {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  using Columns = ColumnsApart<Offset, lanes, vector, columns>;
  using Row = SegmentRows<P, vector, whole, mean>;
  const Row& rows;

  __device__ __forceinline__ void keep(int64 row, const Columns& own) const {
    own.for_each([&](int, Offset column) { rows.keep(row, column); });
  }
  __device__ __forceinline__ auto old(int64 row, const Columns& own) const {
    return own.template joined<Data>([&](int number) { return rows.old(row, own.at(number)); });
  }
  __device__ __forceinline__ void write(int64 row, const Columns& own,
                                        const Vector<Data, vector * columns>& old,
                                        const RowSum<P, vector * columns>& sum,
                                        int64 count) const {
    own.divided(result_of<P, vector * columns, mean>(old, sum, static_cast<uint32>(count)),
                [&](Offset column, const Vector<Data, vector>& result) {
                  store_in_segments<P, whole>(rows.output, rows.place(row, column), result);
                });
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

// Counts one more, behind all that this thread and those it has met have written. A fence would empty
// the first cache as well.
__device__ __forceinline__ uint32 count_written(uint32* counter) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700 && !defined(TVM_SCATTER_NO_PTX)
  uint32 before;
  asm volatile("atom.release.gpu.global.add.u32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(__cvta_generic_to_global(counter))
               : "memory");
  return before;
#else
  __threadfence();
  return atomicAdd(counter, 1u);
#endif
}

// For a group of lanes: whether it is the last of `groups` to come here with what it has written, which
// it can read then. `arrived` starts as zero.
template <int lanes>
__device__ __forceinline__ bool arrives_last(uint32* arrived, uint32 groups) {
  const uint32 group = lanes_of_group<lanes>();
  __syncwarp(group);
  uint32 before = 0;
  if (threadIdx.x % lanes == 0) before = count_written(arrived);
  before = __shfl_sync(group, before, 0, lanes);
  if (before + 1 != groups) return false;
  __threadfence();
  return true;
}

// The sums of pieces of long segments, of which there are `slots`; behind them the sums of some of
// these, and so on. For each part of each row, `arrived` counts the sums that are ready of some
// neighbours, where the first of these is.
template <class P>
struct PieceSums {
  using Wide = Accumulate<typename P::Data>;
  Wide* sums;
  uint32* arrived;
  uint32 slots;

  template <int vector>
  __device__ __forceinline__ RowSum<P, vector>& at(const Sizes<P>& sizes, uint32 slot,
                                                   typename P::Offset column) const {
    return *reinterpret_cast<RowSum<P, vector>*>(sums + place_of_sum<P>(sizes, slot, column));
  }
  // The sums of neighbours among these.
  __device__ __forceinline__ PieceSums above(const Sizes<P>& sizes, int64 tiles) const {
    return {sums + place_of_sum<P>(sizes, slots, 0), arrived + slots * tiles,
            ceil_div<uint32>(slots, 1 << kTogetherBits)};
  }
};

// For a group of lanes that has written the sum of a piece, one of `count` from a slot on: adds up the
// sums of neighbours if it is the last of these, and those of neighbours of these, until others are
// behind or the row is written. `write(column, sum)` does that.
template <class P, int lanes, int vector, int columns, uint32 at_a_time, class Share, class Write>
__device__ __forceinline__ void add_up(PieceSums<P> ready, uint32 first, uint32 count,
                                       const Sizes<P>& sizes, const Share& share, int64 tiles,
                                       Write write) {
  using Offset = typename P::Offset;
  for (uint32 slot = static_cast<uint32>(share.row);;) {
    const Pieces<uint32> together(first, first + count, kTogetherBits);
    const bool is_row = together.count <= 1;
    if (!is_row) {
      slot = together.slot_of(slot);
      first = together.begin_of(slot);
      count = together.begin_of(slot + 1) - first;
    }
    if (!arrives_last<lanes>(ready.arrived + first * tiles + share.tile, count)) return;
    const auto above = ready.above(sizes, tiles);
    for (Offset begin = share.first; begin < sizes.width(); begin += share.step) {
      const ColumnsApart<Offset, lanes, vector, columns> own(begin, sizes.width());
      own.for_each([&](int, Offset column) {
        auto sum = sum_of_none<P, vector>();
        const ListedSums<P, vector, at_a_time> neighbours{ready.sums, sizes, first, column};
        combine_run<typename P::Reduction>(sum, count, neighbours);
        if (!share.writes) return;
        if (is_row) {
          write(column, sum);
        } else {
          above.template at<vector>(sizes, slot, column) = sum;
        }
      });
    }
    if (is_row) return;
    ready = above;
    first = together.first_slot;
    count = together.count;
  }
}

// Behind `add_up`: for a group of lanes that has written the sum of a piece of the row of a place.
template <class P, int lanes, int vector, int columns, bool whole, bool mean, class Key, class Share>
__device__ __forceinline__ void add_up_pieces(const PieceSums<P>& ready, const Key* begins,
                                              const Key* ends, int64 place, const Sizes<P>& sizes,
                                              const Share& share, int bits, int64 tiles,
                                              const SegmentRows<P, vector, whole, mean>& rows) {
  // Read again, so that it takes no registers while updates are summed.
  const SegmentRange all = SegmentRange::of(begins, ends, place, sizes.items());
  const Pieces<int64> pieces(all.begin, all.end, bits);
  // Rows keep their registers: sums of a softmax take more, and so does a division behind them.
  constexpr uint32 at_a_time = P::softmax || mean ? kInFlight / 2 : kInFlight;
  add_up<P, lanes, vector, columns, at_a_time>(
      ready, pieces.first_slot, pieces.count, sizes, share, tiles,
      [&](typename P::Offset column, const auto& sum) {
        rows.write(place, column, rows.old(place, column), sum, pieces.size);
      });
}

// A group of lanes for each slot of a piece, and behind them for each `rows_each` rows, one after the
// other: the range of the next one is on its way meanwhile. Sums pieces of long segments, and writes
// rows. `items` has an entry for each update: its number, or what is carried of it. `columns` and
// `apart` as of `RowShare`.
template <class P, class Key, int lanes, int vector, int columns, bool whole, bool mean, bool first,
          bool apart, int rows_each, class Keys, class List>
__device__ __forceinline__ void sum_updates(const PieceSums<P>& ready,
                                            const typename P::Output& output,
                                            const typename P::Data* data,
                                            const typename P::Updates& updates, const Keys& keys,
                                            const Key* begins, const Key* ends,
                                            const List items, const Sizes<P>& sizes,
                                            uint32 longest, int bits, int64 tiles) {
  using Entry = decltype(entry_of(items));
  using Offset = typename P::Offset;
  using Columns = SegmentColumns<P, lanes, vector, columns, whole, mean>;
  const int64 slots = ready.slots;
  const int64 rows_apart =
      apart ? slots + ceil_div<int64>(sizes.destinations(), rows_each) : 0;
  const SegmentShare<P, lanes, vector, columns> share(sizes, tiles, first_in_grid() / lanes,
                                                      rows_apart);
  const typename Columns::Row row{output, data, sizes};
  const Columns rows{row};
  const bool is_piece = share.row < slots;
  int64 place = (share.row - slots) * rows_each;
  int left = static_cast<int>(min(sizes.destinations() - place, static_cast<int64>(rows_each)));
  Key begin, end;
  if (is_piece) {
    const SegmentRange range =
        segment_of<P>(keys, share.row << bits, begins, ends, sizes, place);
    if (!range.exceeds(longest)) return;
    const Pieces<int64> pieces(range.begin, range.end, bits);
    if (!pieces.has(share.row)) return;
    begin = static_cast<Key>(pieces.begin_of(share.row));
    end = static_cast<Key>(pieces.begin_of(share.row + 1));
    left = 1;
  } else {
    if (left <= 0) return;
    begin = begins[place], end = ends[place];
  }
  const Offset width = sizes.width();
  const auto sum_range = [&](const SegmentRange& range) {
    const int64 count = range.end - range.begin;
    for (Offset column = share.first; column < width; column += share.step) {
      const ColumnsApart<Offset, lanes, vector, columns> own(column, width);
      if (count <= 0) {
        if (share.writes) rows.keep(place, own);
        continue;
      }
      Vector<typename P::Data, vector * columns> old;
      if (!is_piece) old = rows.old(place, own);
      const PlaceColumns<P, Entry, lanes, vector, columns, whole, false, first> sorted(
          updates, items + range.begin, sizes, place, own, share.writes);
      auto sum = sum_of_none<P, vector * columns>();
      combine_run<typename P::Reduction>(sum, static_cast<uint32>(count), sorted);
      if (!share.writes) continue;
      if (is_piece) {
        own.divided(sum, [&](Offset at, const RowSum<P, vector>& part) {
          ready.template at<vector>(sizes, static_cast<uint32>(share.row), at) = part;
        });
      } else {
        rows.write(place, own, old, sum, count);
      }
    }
  };
  for (;;) {
    Key next_begin, next_end;
    if (rows_each > 1 && --left > 0) next_begin = begins[place + 1], next_end = ends[place + 1];
    const SegmentRange range = SegmentRange::of(begin, end, sizes.items());
    if (is_piece || !range.exceeds(longest)) sum_range(range);
    if (rows_each == 1 || left <= 0) break;
    begin = next_begin, end = next_end;
    ++place;
  }
  if (is_piece)
    add_up_pieces<P, lanes, vector, columns>(ready, begins, ends, place, sizes, share, bits, tiles,
                                             row);
}

}  // namespace tvm_scatter
#endif
