// Lines that share one index, such as the channels of an image: the index is ordered once for all.
//
// A thread takes a place along the axis in some lines. It reads what each of the place's entries adds
// to these lines, all at once, and writes each line once, beside its neighbours. What depends on the
// entry alone is computed once for them. The order of the sums depends on the index alone.
#ifndef TVM_SCATTER_COMMON_INDEX
#define TVM_SCATTER_COMMON_INDEX
#include "row_sums.cuh"

namespace tvm_scatter {

constexpr int kPlaceThreads = 256;
constexpr int kPlaceWarps = kPlaceThreads / kWarp;
// More entries of one place are added up by a whole warp, and many by a whole block.
constexpr int kLongRun = 16;
constexpr int kHotRun = 1024;

// Where the value of an entry stands among the updates of a line.
template <class P>
__device__ __forceinline__ typename P::Offset update_of(const Sizes<P>& sizes,
                                                        typename P::Offset batch,
                                                        typename P::Offset entry,
                                                        typename P::Offset column) {
  typename P::Offset at = P::update_batch ? batch : 0;
  if constexpr (P::update_count) at = at * sizes.count + entry;
  if constexpr (P::update_slice) at = at * sizes.slice + column;
  return at;
}

// Some lines, one after the other: a batch and a column of each.
template <class P>
struct LineCursor {
  using Offset = typename P::Offset;
  const Sizes<P>& sizes;
  Offset batch, column;

  __device__ __forceinline__ LineCursor(const Sizes<P>& sizes, Offset line)
      : sizes(sizes), batch(line / sizes.slice), column(line - batch * sizes.slice) {}
  __device__ __forceinline__ void next() {
    if (++column == sizes.slice) column = 0, ++batch;
  }
};

// Some lines, reduced by a block at some places: `most`, or fewer where not all are `whole`.
template <class P, int most, bool whole, bool mean>
struct LineReduction {
  using Data = typename P::Data;
  using Offset = typename P::Offset;
  using Wide = Accumulate<Data>;
  using R = typename P::Reduction;
  const typename P::Output& output;
  const Data* data;
  const int* entries;  // in the order of their places
  const int* begins;   // of each place's, and the end of the last
  const typename P::Updates& updates;
  const Sizes<P>& sizes;
  Offset first_line;
  int lines;

  // Call visit(i, batch, column) for each line.
  template <class Visit>
  __device__ __forceinline__ void for_each_line(Visit visit) const {
    LineCursor<P> line(sizes, first_line);
#pragma unroll
    for (int i = 0; i < most; ++i, line.next())
      if (whole || i < lines) visit(i, line.batch, line.column);
  }

  // Add up the entries of a place in all lines: every `step`-th, from some on.
  __device__ __forceinline__ void add(Wide (&sums)[most], int64 place, int from, int step) const {
#pragma unroll
    for (int i = 0; i < most; ++i) sums[i] = widen(P::start());
    const int end = begins[place + 1];
    int at = begins[place] + from;
    int next = at < end ? entries[at] : 0;
#pragma unroll 1
    for (; at < end; at += step) {
      const Offset entry = static_cast<Offset>(next);
      // On its way while the values of this one are.
      if (at + step < end) next = entries[at + step];
      const auto parts = updates.entry(update_of(sizes, Offset(0), entry, Offset(0)));
      Data values[most];
      for_each_line([&](int i, Offset batch, Offset column) {
        values[i] = updates.at_entry(parts, update_of(sizes, batch, entry, column));
      });
#pragma unroll
      for (int i = 0; i < most; ++i)
        if (whole || i < lines) sums[i] = R::combine(sums[i], widen(values[i]));
    }
  }

  __device__ __forceinline__ void write(const Wide (&sums)[most], int64 place,
                                        int found) const {
    auto element_of = [&](Offset batch, Offset column) {
      return (batch * static_cast<Offset>(sizes.extent()) + static_cast<Offset>(place)) *
                 sizes.slice +
             column;
    };
    const bool copies = P::filled || !output.holds(data);
    Vector<Data, 1> old[most];
    for_each_line([&](int i, Offset batch, Offset column) {
      if (found ? P::include_self : copies) old[i] = data_at<P, 1>(data, element_of(batch, column));
    });
    for_each_line([&](int i, Offset batch, Offset column) {
      const Vector<Wide, 1> sum{{sums[i]}};
      if (found) old[i] = result_of<P, 1, mean>(old[i], sum, found);
      if (found || copies) output.template store<Offset>(element_of(batch, column), old[i]);
    });
  }

  // A place with many entries, by a warp or by the whole block: every thread calls this.
  __device__ __forceinline__ void reduce_together(int64 place, int found, int threads,
                                                  Wide* of_warps) const {
    Wide sums[most];
    add(sums, place, threadIdx.x % threads, threads);
#pragma unroll
    for (int i = 0; i < most; ++i) sums[i] = combine_lanes<R>(sums[i]);
    if (threads > kWarp) {
      const int warp = threadIdx.x / kWarp;
      if (threadIdx.x % kWarp == 0) {
#pragma unroll
        for (int i = 0; i < most; ++i) of_warps[warp * most + i] = sums[i];
      }
      __syncthreads();
      if (threadIdx.x == 0) {
        for (int other = 1; other < kPlaceWarps; ++other) {
#pragma unroll
          for (int i = 0; i < most; ++i)
            sums[i] = R::combine(sums[i], of_warps[other * most + i]);
        }
      }
      __syncthreads();
    }
    if (threadIdx.x % threads == 0) write(sums, place, found);
  }
};

// One block for each group of places and each group of at most `most` lines. Blocks that run at the
// same time have the same lines, which the cache then holds.
template <class P, int most, bool whole, bool mean>
__device__ __forceinline__ void reduce_lines(const typename P::Output& output,
                                             const typename P::Data* data,
                                             const int* entries, const int* begins,
                                             const typename P::Updates& updates,
                                             const Sizes<P>& sizes, int64 groups) {
  using Reduction = LineReduction<P, most, whole, mean>;
  using Wide = typename Reduction::Wide;
  using Offset = typename P::Offset;
  __shared__ Wide of_warps[kPlaceWarps * most];
  __shared__ int counts[kPlaceThreads];
  if (groups == 0) return;
  const int64 group = blockIdx.x / groups;
  const int64 first_place = (blockIdx.x - group * groups) * kPlaceThreads;
  const int64 lines = static_cast<int64>(sizes.batch) * sizes.slice - group * most;
  if (lines <= 0) return;
  const Reduction reduction{output, data, entries, begins, updates, sizes,
                            static_cast<Offset>(group * most),
                            static_cast<int>(min(lines, static_cast<int64>(most)))};
  const int64 place = first_place + threadIdx.x;
  int found = 0;
  if (place < sizes.extent()) {
    found = begins[place + 1] - begins[place];
    if (found <= kLongRun) {
      Wide sums[most];
      reduction.add(sums, place, 0, 1);
      reduction.write(sums, place, found);
    }
  }
  counts[threadIdx.x] = found;
  if (!__syncthreads_or(found > kLongRun)) return;
  const int64 left = static_cast<int64>(sizes.extent()) - first_place;
  const int places = static_cast<int>(min(left, static_cast<int64>(kPlaceThreads)));
  for (int at = 0; at < places; ++at)
    if (counts[at] > kHotRun)
      reduction.reduce_together(first_place + at, counts[at], kPlaceThreads, of_warps);
  for (int at = threadIdx.x / kWarp; at < places; at += kPlaceWarps)
    if (counts[at] > kLongRun && counts[at] <= kHotRun)
      reduction.reduce_together(first_place + at, counts[at], kWarp, of_warps);
}

}  // namespace tvm_scatter
#endif
