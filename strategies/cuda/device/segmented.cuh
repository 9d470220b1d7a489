// Segmented reduction in gather form: given the updates in the order of their destinations, every
// output row is written once, from its own segment or, if it has none, from the data.
//
// Segments with more than `longest` updates are cut into pieces, evenly. The sum of each piece is
// computed beforehand, by whoever is free, and where there are many, sums of these. The row then adds
// up sums in the order of the list, so the result depends on the list alone, and no row does more than
// a few hundred additions for each million.
#ifndef TVM_SCATTER_SEGMENTED
#define TVM_SCATTER_SEGMENTED
#include "place_updates.cuh"

namespace tvm_scatter {

// Sums of pieces that are added up beforehand.
constexpr int kPiecesTogether = 64;

// How entries [begin, end) are cut into pieces of `least` entries or a few more. Each has a slot, in
// which no other one is: `least` times the slot is the number of an entry among these.
template <int least>
struct Pieces {
  int64 begin, size, first_slot, count;

  __device__ __forceinline__ Pieces(int64 begin, int64 end)
      : begin(begin), size(end - begin), first_slot(ceil_div<int64>(begin, least)),
        count((end - begin) / least) {}

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
template <int least>
struct CutSegment {
  Pieces<least> pieces;
  Pieces<kPiecesTogether> together;

  __device__ __forceinline__ CutSegment(int64 begin, int64 end)
      : pieces(begin, end), together(pieces.first_slot, pieces.first_slot + pieces.count) {}

  __device__ __forceinline__ bool is_cut_again() const { return together.count > 1; }
};

// Where a segment begins and ends. An order that the caller gives may be that of anything.
struct SegmentRange {
  int64 begin, end;

  template <class Key>
  __device__ __forceinline__ SegmentRange(const Key* begins, const Key* ends, int64 place, int64 items)
      : begin(max(static_cast<int64>(begins[place]), static_cast<int64>(0))),
        end(min(static_cast<int64>(ends[place]), items)) {}
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
template <class P>
struct OrderedKeys {
  const Indices<P>& indices;
  const int* permutation;
  const Sizes<P>& sizes;

  __device__ __forceinline__ int operator[](int64 at) const {
    using Offset = typename P::Offset;
    const Item<P> item(sizes, static_cast<Offset>(permutation[at]));
    Offset destination;
    const bool has_place = find_destination(sizes, indices, item.index, destination);
    return static_cast<int>(has_place ? destination : sizes.destinations());
  }
};

// Which columns of which row a thread has.
template <class P, int lanes, int vector>
using SegmentShare = typename If<(P::Updates::summed_columns > 0), LogitShare<P, lanes, vector>,
                                 RowShare<P, lanes, vector>>::type;

// The sums of pieces of long segments, a slot for each group of lanes: of updates (`from` is null), or
// of sums.
template <class P, class Key, int lanes, int vector, bool whole, int least, class Keys>
__device__ __forceinline__ void sum_pieces(Accumulate<typename P::Data>* to,
                                           const Accumulate<typename P::Data>* from,
                                           const typename P::Updates& updates, const Keys& keys,
                                           const Key* begins, const Key* ends, const Key* items,
                                           const Sizes<P>& sizes, uint32 longest, int64 tiles) {
  using Offset = typename P::Offset;
  using R = typename P::Reduction;
  const SegmentShare<P, lanes, vector> share(sizes, tiles);
  const int64 slot = share.row;
  const int64 entry = slot * (from ? least * kPiecesTogether : least);
  if (entry >= sizes.items()) return;
  const Key key = keys[entry];
  if (key == static_cast<Key>(sizes.destinations())) return;
  const SegmentRange segment(begins, ends, key, sizes.items());
  if (segment.end - segment.begin <= longest) return;
  const CutSegment<least> cut(segment.begin, segment.end);
  if (from ? !cut.is_cut_again() || !cut.together.has(slot) : !cut.pieces.has(slot)) return;
  const int64 begin = from ? cut.together.begin_of(slot) : cut.pieces.begin_of(slot);
  const int64 end = from ? cut.together.begin_of(slot + 1) : cut.pieces.begin_of(slot + 1);
  const uint32 count = static_cast<uint32>(end - begin);
  const Offset width = sizes.width();
  for (Offset column = share.first; column < width; column += share.step) {
    auto sum = sum_of_none<P, vector>();
    if (from) {
      combine_run<R>(sum, count, ListedSums<P, vector>{from, sizes, begin, column});
    } else {
      const auto own = own_of<P, vector, whole>(updates, static_cast<int64>(key), column);
      const PlaceUpdates<P, Key, lanes, vector, whole> sorted{
          {updates, items + begin, sizes, column}, own, share.writes};
      combine_updates(sum, count, sorted);
    }
    if (!share.writes) continue;
    *reinterpret_cast<RowSum<P, vector>*>(to + place_of_sum<P>(sizes, slot, column)) = sum;
  }
}

// The sorted list and the sums of pieces.
template <class P, class Key>
struct Segments {
  using Wide = Accumulate<typename P::Data>;
  typename P::Updates updates;
  const Key* items;
  const Wide* pieces;
  const Wide* together;
  uint32 longest;
};

// The sum of the entries of a place in the sorted list, in one column of vectors.
template <class P, class Key, int lanes, int vector, bool whole, int least>
__device__ __forceinline__ RowSum<P, vector> sum_segment(const Segments<P, Key>& segments,
                                                         const Sizes<P>& sizes, int64 place,
                                                         const SegmentRange& range,
                                                         typename P::Offset column, bool counts) {
  using R = typename P::Reduction;
  auto sum = sum_of_none<P, vector>();
  if (range.end - range.begin <= segments.longest) {
    const auto own = own_of<P, vector, whole>(segments.updates, place, column);
    const PlaceUpdates<P, Key, lanes, vector, whole> sorted{
        {segments.updates, segments.items + range.begin, sizes, column}, own, counts};
    combine_updates(sum, static_cast<uint32>(range.end - range.begin), sorted);
    return sum;
  }
  const CutSegment<least> cut(range.begin, range.end);
  const bool again = cut.is_cut_again();
  const int64 slot = again ? cut.together.first_slot : cut.pieces.first_slot;
  const int64 count = again ? cut.together.count : cut.pieces.count;
  const ListedSums<P, vector> sums{again ? segments.together : segments.pieces, sizes, slot, column};
  combine_run<R>(sum, static_cast<uint32>(count), sums);
  return sum;
}

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

template <class P, class Key, int lanes, int vector, bool whole, int least, bool mean>
__device__ __forceinline__ void write_segments(const typename P::Output& output,
                                               const typename P::Data* data, const Key* begins, const Key* ends,
                                               const Segments<P, Key>& segments,
                                               const Sizes<P>& sizes, int64 tiles) {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  const SegmentShare<P, lanes, vector> share(sizes, tiles);
  if (share.row >= sizes.destinations()) return;
  const SegmentRange range(begins, ends, share.row, sizes.items());
  const Offset width = sizes.width();
  for (Offset column = share.first; column < width; column += share.step) {
    const int64 at = share.row * width + column;
    if (range.begin >= range.end) {
      if (share.writes && (P::filled || !output.holds(data)))
        store_in_segments<P, whole>(output, at, data_in_segments<P, whole, vector>(data, at));
      continue;
    }
    Vector<Data, vector> old;
    if constexpr (P::include_self) old = data_in_segments<P, whole, vector>(data, at);
    const auto sum = sum_segment<P, Key, lanes, vector, whole, least>(
        segments, sizes, share.row, range, column, share.writes);
    const uint32 count = static_cast<uint32>(range.end - range.begin);
    const auto result = result_of<P, vector, mean>(old, sum, count);
    if (share.writes) store_in_segments<P, whole>(output, at, result);
  }
}

}  // namespace tvm_scatter
#endif
