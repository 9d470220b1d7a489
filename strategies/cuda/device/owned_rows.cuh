// Owned rows: each block owns some rows of the output, and some of their columns. It looks through all
// indices, lists the updates of its rows in shared memory, in order, and writes each row once.
//
// One launch, no atomic on what is summed, and nothing is read twice but the index. A row with many
// updates is summed by the whole block.
#ifndef TVM_SCATTER_OWNED_ROWS
#define TVM_SCATTER_OWNED_ROWS
#include "owned_lists.cuh"
#include "row_sums.cuh"

namespace tvm_scatter {

// A row with more updates is summed by the whole block.
constexpr uint32 kLongRow = 32;

// What a block does to its rows: `lanes` threads share a row, and take every `spans`-th of the vectors.
template <class P, int threads, int groups, int lanes, int vector, int unroll, bool mean,
          bool in_place>
struct OwnedRows {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  using R = typename P::Reduction;
  using Sum = RowSum<P, vector>;
  using Lists = OwnedLists<P, threads, Residues<groups>>;
  using Listed = ListedUpdates<P, unsigned short, vector, true, true>;
  using Held = decltype(static_cast<const Listed*>(nullptr)->read(
      static_cast<const Listed*>(nullptr)->item(0u)));
  static constexpr uint32 teams = threads / lanes;
  // Whether the first update of each row is read before any other; of one row all are read together.
  static constexpr bool reads_first = unroll > 1;
  // Whether a row without updates stands in the output already.
  static constexpr bool keeps = in_place && !P::filled && !P::Output::finishes;
  const typename P::Output& output;
  const Data* data;
  const typename P::Updates& updates;
  const Sizes<P>& sizes;
  const Lists& lists;
  Offset first, step;

  __device__ __forceinline__ OwnedRows(const typename P::Output& output, const Data* data,
                                       const typename P::Updates& updates, const Sizes<P>& sizes,
                                       const Lists& lists, int span,
                                       int spans)
      : output(output), data(data), updates(updates), sizes(sizes), lists(lists),
        first(static_cast<Offset>(span * lanes) * vector),
        step(static_cast<Offset>(spans * lanes) * vector) {}

  // Those of the list from an entry on.
  __device__ __forceinline__ Listed updates_from(uint32 at, Offset column) const {
    return Listed{updates, lists.list + at, sizes, column};
  }
  __device__ __forceinline__ Vector<Data, vector> old(int64 at, uint32 count) const {
    if (count && !P::include_self) return splat<Data, vector>(P::start());
    return data_at<P, vector>(data, at);
  }
  __device__ __forceinline__ void write(int64 at, const Vector<Data, vector>& old, const Sum& sum,
                                        uint32 count) const {
    output.template store<Offset>(at, result_of<P, vector, mean>(old, sum, count));
  }

  // For whole blocks. Each team sums a part of the updates, and neighbours add up their sums.
  __device__ __forceinline__ void write_long_rows() const {
    if constexpr (!same<R, Update>) {
      __shared__ uint32 listed;
      if (threadIdx.x == 0) listed = 0;
      __syncthreads();
      for (uint32 row = threadIdx.x; row < lists.rows; row += threads)
        if (lists.updates_of(row) > kLongRow)
          lists.found[atomicAdd(&listed, 1u)] = row;
      __syncthreads();
      for (uint32 i = 0; i < listed; ++i) write_long_row(lists.found[i]);
    }
  }

  // The rows of a team, some of them at once: their data and first updates are on their way together.
  __device__ __forceinline__ void write_short_rows() const {
    const uint32 team = threadIdx.x / lanes;
    const Offset lane = static_cast<Offset>(threadIdx.x % lanes) * vector;
    for (Offset column = first + lane; column < sizes.width(); column += step)
      for (uint32 row = team; row < lists.rows; row += teams * unroll) write_some(row, column);
  }

 private:
  __device__ __forceinline__ void write_long_row(uint32 row) const {
    __shared__ Sum held[threads];
    const uint32 begin = lists.begins[row], count = lists.updates_of(row);
    const uint32 share = max(ceil_div(count, teams), kInFlight), team = threadIdx.x / lanes;
    const uint32 skip = min(count, team * share), own = min(share, count - skip);
    const uint32 shares = ceil_div(count, share);
    const Offset lane = static_cast<Offset>(threadIdx.x % lanes) * vector;
    for (Offset base = first; base < sizes.width(); base += step) {
      const Offset column = base + lane;
      const int64 at = static_cast<int64>(lists.owner.place(row)) * sizes.width() + column;
      Sum sum = sum_of_none<P, vector>();
      if (column < sizes.width())
        combine_run<R>(sum, own, updates_from(begin + skip, column));
      held[threadIdx.x] = sum;
      __syncthreads();
      for (uint32 apart = 1; apart < shares; apart *= 2) {
        if (team % (2 * apart) == 0 && team + apart < shares) {
          sum = combine_vectors<R>(sum, held[threadIdx.x + apart * lanes]);
          held[threadIdx.x] = sum;
        }
        __syncthreads();
      }
      if (team == 0 && column < sizes.width()) write(at, old(at, count), sum, count);
      __syncthreads();
    }
  }

  __device__ __forceinline__ void write_some(uint32 row, Offset column) const {
    uint32 begin[unroll], count[unroll];
    Vector<Data, vector> stands[unroll];
    Held update[unroll];
    bool writes[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const uint32 at = row + u * teams;
      writes[u] = at < lists.rows;
      if (!writes[u]) continue;
      begin[u] = lists.begins[at];
      count[u] = lists.updates_of(at);
      if (same<R, Update> && count[u]) {
        begin[u] += count[u] - 1;
        count[u] = 1;
      }
      writes[u] = count[u] <= kLongRow && !(keeps && count[u] == 0);
      if (!writes[u]) continue;
      stands[u] = old(static_cast<int64>(lists.owner.place(at)) * sizes.width() + column, count[u]);
      if (!reads_first || count[u] == 0) continue;
      const Listed listed = updates_from(begin[u], column);
      update[u] = listed.read(listed.item(0));
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (!writes[u]) continue;
      const int64 at =
          static_cast<int64>(lists.owner.place(row + u * teams)) * sizes.width() + column;
      if (count[u] == 0) {
        output.template store<Offset>(at, stands[u]);
        continue;
      }
      Sum sum = sum_of_none<P, vector>();
      if (reads_first) add_row<R>(sum, update[u]);
      const uint32 known = reads_first;
      combine_run<R>(sum, count[u] - known, updates_from(begin[u] + known, column));
      write(at, stands[u], sum, count[u]);
    }
  }
};

template <class P, int threads, int groups, int lanes, int vector, int unroll, int ahead, bool mean,
          bool in_place>
__device__ __forceinline__ void owned_rows(const typename P::Output& output,
                                           const typename P::Data* data,
                                           const typename P::Updates& updates,
                                           const Indices<P>& indices, const Sizes<P>& sizes,
                                           int spans, char* shared) {
  const int group = blockIdx.x / spans;
  const OwnedLists<P, threads, Residues<groups>> lists(
      shared, sizes, {static_cast<uint32>(group), static_cast<uint32>(sizes.destinations())});
  lists.template make<ahead>(indices, sizes, [](uint32) {});
  const OwnedRows<P, threads, groups, lanes, vector, unroll, mean, in_place> rows(
      output, data, updates, sizes, lists, blockIdx.x - group * spans, spans);
  rows.write_long_rows();
  rows.write_short_rows();
}

}  // namespace tvm_scatter
#endif
