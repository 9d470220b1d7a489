// Segmented reduction in gather form: given the updates in the order of their destinations, every
// output row is written once, from its own segment or, if it has none, from the data.
//
// Segments with more than `longest` updates are split in a fixed order. Where an aligned chunk of the
// sorted list lies inside one, its sum is computed beforehand, by whoever is free; chunks of chunks
// likewise. The row then adds single updates, chunks and chunks of chunks in the order of the list, so
// the result depends on the list alone and no row does more than a few hundred additions for each
// million.
#ifndef TVM_SCATTER_SEGMENTED
#define TVM_SCATTER_SEGMENTED
#include "place_updates.cuh"

namespace tvm_scatter {

constexpr int kSegmentChunk = 64;
constexpr int kSegmentChunks = kSegmentChunk * kSegmentChunk;

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

// The sums of aligned chunks that lie inside one long segment: of updates (`from` is null), or of
// chunks.
template <class P, class Key, int lanes, int vector, bool whole, class Keys>
__device__ __forceinline__ void sum_chunks(Accumulate<typename P::Data>* to,
                                           const Accumulate<typename P::Data>* from,
                                           const typename P::Updates& updates, const Keys& keys,
                                           const Key* begins, const Key* ends, const Key* items,
                                           const Sizes<P>& sizes, uint32 longest, int64 tiles) {
  using Offset = typename P::Offset;
  using R = typename P::Reduction;
  const SegmentShare<P, lanes, vector> share(sizes, tiles);
  const int64 chunk = share.row;
  const int64 length = from ? kSegmentChunks : kSegmentChunk;
  const int64 begin = chunk * length;
  if (begin + length > sizes.items()) return;
  const Key key = keys[begin];
  if (key == static_cast<Key>(sizes.destinations())) return;
  const int64 first = begins[key], last = ends[key];
  if (last - first <= longest || first > begin || last < begin + length) return;
  const Offset width = sizes.width();
  for (Offset column = share.first; column < width; column += share.step) {
    auto sum = sum_of_none<P, vector>();
    if (from) {
      const ListedSums<P, vector> sums{from, sizes, chunk * kSegmentChunk, column};
      combine_run<R>(sum, kSegmentChunk, sums);
    } else {
      const auto own = own_of<P, vector, whole>(updates, static_cast<int64>(key), column);
      const PlaceUpdates<P, Key, lanes, vector, whole> sorted{
          {updates, items + begin, sizes, column}, own, share.writes};
      combine_updates(sum, kSegmentChunk, sorted);
    }
    if (!share.writes) continue;
    *reinterpret_cast<RowSum<P, vector>*>(to + place_of_sum<P>(sizes, chunk, column)) = sum;
  }
}

// The sorted list and the sums of its chunks.
template <class P, class Key>
struct Segments {
  using Wide = Accumulate<typename P::Data>;
  typename P::Updates updates;
  const Key* items;
  const Wide* chunks;
  const Wide* chunks_of_chunks;
  uint32 longest;
};

// The sum of the entries [at, end) of the sorted list, those of one place, in one column of vectors.
template <class P, class Key, int lanes, int vector, bool whole>
__device__ __forceinline__ RowSum<P, vector> sum_segment(
    const Segments<P, Key>& segments, const Sizes<P>& sizes, int64 place, int64 from, int64 until,
    typename P::Offset column, bool counts) {
  using Wide = Accumulate<typename P::Data>;
  using R = typename P::Reduction;
  // Half the registers, where positions in the list take no more.
  using At = typename If<sizeof(Key) == 4, uint32, uint64>::type;
  At at = static_cast<At>(from);
  const At end = static_cast<At>(until);
  auto sum = sum_of_none<P, vector>();
  const auto own = own_of<P, vector, whole>(segments.updates, place, column);
  auto add_updates = [&](At until) {
    const PlaceUpdates<P, Key, lanes, vector, whole> sorted{
        {segments.updates, segments.items + at, sizes, column}, own, counts};
    combine_updates(sum, static_cast<uint32>(until - at), sorted);
    at = until;
  };
  auto add_chunks = [&](const Wide* sums, At length, At until) {
    combine_run<R>(sum, static_cast<uint32>((until - at) / length),
                   ListedSums<P, vector>{sums, sizes, static_cast<int64>(at / length), column});
    at = until;
  };
  const At first_chunk = ceil_div<At>(at, kSegmentChunk) * kSegmentChunk;
  const At last_chunk = end / kSegmentChunk * kSegmentChunk;
  // Single updates in front of chunks and behind them are added by one loop: it is long.
  bool has_chunks = first_chunk < last_chunk && end - at > segments.longest;
#pragma unroll 1
  for (;; has_chunks = false) {
    add_updates(has_chunks ? first_chunk : end);
    if (!has_chunks) break;
    const At first_many = ceil_div<At>(first_chunk, kSegmentChunks) * kSegmentChunks;
    const At last_many = last_chunk / kSegmentChunks * kSegmentChunks;
    if (first_many < last_many) {
      add_chunks(segments.chunks, kSegmentChunk, first_many);
      add_chunks(segments.chunks_of_chunks, kSegmentChunks, last_many);
    }
    add_chunks(segments.chunks, kSegmentChunk, last_chunk);
  }
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

template <class P, class Key, int lanes, int vector, bool whole, bool mean>
__device__ __forceinline__ void write_segments(const typename P::Output& output,
                                               const typename P::Data* data, const Key* begins, const Key* ends,
                                               const Segments<P, Key>& segments,
                                               const Sizes<P>& sizes, int64 tiles) {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  const SegmentShare<P, lanes, vector> share(sizes, tiles);
  if (share.row >= sizes.destinations()) return;
  // An order that the caller gives may be that of anything.
  const int64 begin = max(static_cast<int64>(begins[share.row]), static_cast<int64>(0));
  const int64 end = min(static_cast<int64>(ends[share.row]), static_cast<int64>(sizes.items()));
  const Offset width = sizes.width();
  for (Offset column = share.first; column < width; column += share.step) {
    const int64 at = share.row * width + column;
    if (begin >= end) {
      if (share.writes && (P::filled || !output.holds(data)))
        store_in_segments<P, whole>(output, at, data_in_segments<P, whole, vector>(data, at));
      continue;
    }
    Vector<Data, vector> old;
    if constexpr (P::include_self) old = data_in_segments<P, whole, vector>(data, at);
    const auto sum = sum_segment<P, Key, lanes, vector, whole>(segments, sizes, share.row, begin,
                                                               end, column, share.writes);
    const uint32 count = static_cast<uint32>(end - begin);
    const auto result = result_of<P, vector, mean>(old, sum, count);
    if (share.writes) store_in_segments<P, whole>(output, at, result);
  }
}

}  // namespace tvm_scatter
#endif
