// Reduction over an order of the updates that is given: groups of lanes walk along the sorted list,
// each through some neighbouring rows, and write every row once.
//
// What names an update is read by one lane each, for as many updates as the group has lanes, while
// the rows of those before are on their way; the others get it from that lane. So a row costs no
// chain of reads of its own. Long segments are left to chunks, as in segmented.cuh.
#ifndef TVM_SCATTER_ORDERED
#define TVM_SCATTER_ORDERED
#include "segmented.cuh"

namespace tvm_scatter {

// Whether an aligned chunk lies inside of a segment, so that its sum is made beforehand.
__device__ __forceinline__ bool has_chunk(int64 begin, int64 end) {
  return ceil_div<int64>(begin, kSegmentChunk) < end / kSegmentChunk;
}

template <int count>
struct Words {
  uint32 at[count];
};

// What one lane of a group holds, for all of them.
template <int lanes, class T>
__device__ __forceinline__ T of_lane(const T& value, int lane) {
  if constexpr (lanes == 1) {
    return value;
  } else {
    static_assert(sizeof(T) % 4 == 0, "it is exchanged in words");
    constexpr int count = sizeof(T) / 4;
    const int first = threadIdx.x % kWarp / lanes * lanes;
    const uint32 group = lanes == kWarp ? kAllLanes : ((1ull << lanes) - 1) << first;
    auto words = bit_cast<Words<count>>(value);
#pragma unroll
    for (int i = 0; i < count; ++i)
      words.at[i] = __shfl_sync(group, words.at[i], lane, lanes);
    return bit_cast<T>(words);
  }
}

// The rows [first, first + count) of one group, in one column of vectors. All lanes of the group call
// it together, those beyond the width as well.
template <class P, class Key, int lanes, int vector, int ahead, bool mean>
struct RowWalk {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  using Wide = Accumulate<Data>;
  using Rows = ListedUpdates<P, Key, vector, true>;
  Data* out;
  const Data* data;
  const Rows rows;
  int64 first;
  Key begin, end_of_lane;  // of the first row; of the row that has the lane's number
  Offset column, width;
  bool active;

  __device__ __forceinline__ Key end_of(int row) const { return of_lane<lanes>(end_of_lane, row); }
  __device__ __forceinline__ Key begin_of(int row) const { return row ? end_of(row - 1) : begin; }

  __device__ __forceinline__ void write(int row, const Vector<Wide, vector>& sum, Key count) const {
    const int64 at = (first + row) * width + column;
    if (!active) return;
    if (count == 0) {
      if (P::filled || out != data) store<Data, vector>(out + at, data_at<P, vector>(data, at));
      return;
    }
    Vector<Data, vector> old;
    if constexpr (P::include_self) old = data_at<P, vector>(data, at);
    store<Data, vector>(out + at,
                        result_of<P, vector, mean>(old, sum, static_cast<uint32>(count)));
  }

  // The rows [row, stop), none of which has a chunk.
  __device__ __forceinline__ void walk(int row, int stop) const {
    using R = typename P::Reduction;
    const Key from = begin_of(row), to = end_of(stop - 1);
    const auto start = splat<Wide, vector>(widen(P::start()));
    const int lane = threadIdx.x % lanes;
    auto sum = start;
    Key row_begin = from, row_end = end_of(row);
    typename Rows::Found own, next;
    if (from + lane < to) own = rows.item(from + lane);
    for (Key base = from; base < to; base += lanes, own = next) {
      if (base + lanes + lane < to) next = rows.item(base + lanes + lane);
      const int batch = min(lanes, static_cast<int>(to - base));
      for (int i = 0; i < batch; i += ahead) {
        Vector<Data, vector> held[ahead];
#pragma unroll
        for (int u = 0; u < ahead; ++u) {
          const auto found = of_lane<lanes>(own, min(i + u, lanes - 1));
          if (i + u < batch && active) held[u] = rows.read(found);
        }
#pragma unroll
        for (int u = 0; u < ahead; ++u) {
          if (i + u >= batch) break;
          while (base + i + u >= row_end) {
            write(row, sum, row_end - row_begin);
            sum = start;
            row_begin = row_end;
            row_end = end_of(++row);
          }
          if (active) sum = combine_vectors<R>(sum, widen(held[u]));
        }
      }
    }
    for (; row < stop; ++row) {
      row_end = end_of(row);
      write(row, sum, row_end - row_begin);
      sum = start;
      row_begin = row_end;
    }
  }

  __device__ __forceinline__ void operator()(int count) const {
    for (int row = 0; row < count;) {
      int stop = row;
      while (stop < count && !has_chunk(begin_of(stop), end_of(stop))) ++stop;
      if (stop > row) walk(row, stop);
      row = stop + 1;
    }
  }
};

// Write all rows whose segments have no chunk, `count` of them by each group of lanes.
template <class P, class Key, int lanes, int vector, int ahead, int count, bool mean>
__device__ __forceinline__ void walk_rows(typename P::Data* out, const typename P::Data* data,
                                          const Key* begins, const Segments<P, Key>& segments,
                                          const Sizes<P>& sizes, int64 tiles) {
  static_assert(count <= lanes, "each lane holds where one row ends");
  using Offset = typename P::Offset;
  using Walk = RowWalk<P, Key, lanes, vector, ahead, mean>;
  const RowShare<P, lanes, vector> share(tiles);
  const int64 first = share.row * count;
  if (first >= sizes.destinations()) return;
  const int owned = static_cast<int>(min(static_cast<int64>(count), sizes.destinations() - first));
  const int lane = threadIdx.x % lanes;
  const Key begin = begins[first], end = begins[first + min(lane + 1, owned)];
  const Offset width = sizes.width();
  const Offset before = share.first % (lanes * vector);
  for (Offset base = share.first - before; base < width; base += share.step) {
    const Offset column = base + before;
    Walk{out,   data, {segments.updates, segments.items, sizes, column},
         first, begin, end, column, width, column < width}(owned);
  }
}

// Write the rows whose segments have chunks: by the group of lanes that has the first of these.
template <class P, class Key, int lanes, int vector, bool mean, class Keys>
__device__ __forceinline__ void write_long_rows(typename P::Data* out,
                                                const typename P::Data* data, const Key* begins,
                                                const Keys& keys,
                                                const Segments<P, Key>& segments,
                                                const Sizes<P>& sizes, int64 tiles) {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  const RowShare<P, lanes, vector> share(tiles);
  const int64 at = share.row * kSegmentChunk;
  if (at >= sizes.items()) return;
  const Key key = keys[at];
  if (key == static_cast<Key>(sizes.destinations())) return;
  const int64 begin = begins[key], end = begins[key + 1];
  if (!has_chunk(begin, end) || at - begin >= kSegmentChunk) return;
  const Offset width = sizes.width();
  for (Offset column = share.first; column < width; column += share.step) {
    const int64 to = static_cast<int64>(key) * width + column;
    Vector<Data, vector> old;
    if constexpr (P::include_self) old = data_at<P, vector>(data, to);
    const auto sum = sum_segment<P, Key, vector>(segments, sizes, begin, end, column);
    const uint32 count = static_cast<uint32>(end - begin);
    store<Data, vector>(out + to, result_of<P, vector, mean>(old, sum, count));
  }
}

}  // namespace tvm_scatter
#endif
