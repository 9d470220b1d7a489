// Segmented reduction in gather form: given the updates in the order of their destinations, every
// output row is written once, from its own segment or, if it has none, from the data.
//
// Long segments are split in a fixed order. Where an aligned chunk of the sorted list lies inside
// one segment, its sum is computed beforehand, by whoever is free; chunks of chunks likewise. The
// row then adds single updates, chunks and chunks of chunks in the order of the list, so the result
// depends on the list alone and no row does more than a few hundred additions for each million.
#ifndef TVM_SCATTER_SEGMENTED
#define TVM_SCATTER_SEGMENTED
#include "row_sums.cuh"

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

// The sums of aligned chunks that lie inside one segment: of updates (`from` is null) or of chunks.
template <class P, class Key, int lanes, int vector, class Keys>
__device__ __forceinline__ void sum_chunks(Accumulate<typename P::Data>* to,
                                           const Accumulate<typename P::Data>* from,
                                           const typename P::Updates& updates, const Keys& keys,
                                           const Key* items, const Sizes<P>& sizes, int64 tiles) {
  using Offset = typename P::Offset;
  using R = typename P::Reduction;
  const RowShare<P, lanes, vector> share(tiles);
  const int64 chunk = share.row;
  const int64 length = from ? kSegmentChunks : kSegmentChunk;
  const int64 begin = chunk * length;
  if (begin + length > sizes.items()) return;
  const Key key = keys[begin];
  if (key == static_cast<Key>(sizes.destinations()) || keys[begin + length - 1] != key) return;
  const Offset width = sizes.width();
  for (Offset column = share.first; column < width; column += share.step) {
    auto sum = sum_of_none<P, vector>();
    if (from) {
      const ListedSums<P, vector> sums{from, sizes, chunk * kSegmentChunk, column};
      combine_run<R>(sum, kSegmentChunk, sums);
    } else {
      const ListedUpdates<P, Key, vector> sorted{updates, items + begin, sizes, column};
      combine_run<R>(sum, kSegmentChunk, sorted);
    }
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
};

// The sum of the entries [at, end) of the sorted list, in one column of vectors.
template <class P, class Key, int vector>
__device__ __forceinline__ RowSum<P, vector> sum_segment(
    const Segments<P, Key>& segments, const Sizes<P>& sizes, int64 at, int64 end,
    typename P::Offset column) {
  using Wide = Accumulate<typename P::Data>;
  using R = typename P::Reduction;
  auto sum = sum_of_none<P, vector>();
  auto add_updates = [&](int64 until) {
    const ListedUpdates<P, Key, vector> sorted{segments.updates, segments.items + at, sizes,
                                               column};
    combine_run<R>(sum, static_cast<uint32>(until - at), sorted);
    at = until;
  };
  auto add_chunks = [&](const Wide* sums, int64 length, int64 until) {
    combine_run<R>(sum, static_cast<uint32>((until - at) / length),
                   ListedSums<P, vector>{sums, sizes, at / length, column});
    at = until;
  };
  const int64 first_chunk = ceil_div<int64>(at, kSegmentChunk) * kSegmentChunk;
  const int64 last_chunk = end / kSegmentChunk * kSegmentChunk;
  if (first_chunk < last_chunk) {
    add_updates(first_chunk);
    const int64 first_many = ceil_div<int64>(first_chunk, kSegmentChunks) * kSegmentChunks;
    const int64 last_many = last_chunk / kSegmentChunks * kSegmentChunks;
    if (first_many < last_many) {
      add_chunks(segments.chunks, kSegmentChunk, first_many);
      add_chunks(segments.chunks_of_chunks, kSegmentChunks, last_many);
    }
    add_chunks(segments.chunks, kSegmentChunk, last_chunk);
  }
  add_updates(end);
  return sum;
}

template <class P, class Key, int lanes, int vector, bool mean>
__device__ __forceinline__ void write_segments(const typename P::Output& output,
                                               const typename P::Data* data, const Key* begins, const Key* ends,
                                               const Segments<P, Key>& segments,
                                               const Sizes<P>& sizes, int64 tiles) {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  const RowShare<P, lanes, vector> share(tiles);
  if (share.row >= sizes.destinations()) return;
  // An order that the caller gives may be that of anything.
  const int64 begin = max(static_cast<int64>(begins[share.row]), static_cast<int64>(0));
  const int64 end = min(static_cast<int64>(ends[share.row]), static_cast<int64>(sizes.items()));
  const Offset width = sizes.width();
  for (Offset column = share.first; column < width; column += share.step) {
    const int64 at = share.row * width + column;
    if (begin >= end) {
      if (P::filled || !output.holds(data))
        output.template store<Offset>(at, data_at<P, vector>(data, at));
      continue;
    }
    Vector<Data, vector> old;
    if constexpr (P::include_self) old = data_at<P, vector>(data, at);
    const auto sum = sum_segment<P, Key, vector>(segments, sizes, begin, end, column);
    const uint32 count = static_cast<uint32>(end - begin);
    output.template store<Offset>(at, result_of<P, vector, mean>(old, sum, count));
  }
}

}  // namespace tvm_scatter
#endif
