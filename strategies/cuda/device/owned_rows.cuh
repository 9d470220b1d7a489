// Owned rows: each block owns some rows of the output, and some of their columns. It looks through all
// indices, lists the updates of its rows in shared memory, in order, and writes each row once.
//
// One launch, no atomic on what is summed, and nothing is read twice but the index. A row with many
// updates is summed by the whole block.
#ifndef TVM_SCATTER_OWNED_ROWS
#define TVM_SCATTER_OWNED_ROWS
#include "block_scan.cuh"
#include "grid.cuh"
#include "row_sums.cuh"

namespace tvm_scatter {

// A row with more updates is summed by the whole block.
constexpr uint32 kLongRow = 32;
// Indices of a thread that are on their way together.
constexpr int kIndicesAhead = 16;

// The updates of a block's rows, which are every `groups`-th of the output. For whole blocks.
template <class P, int threads, int groups>
struct OwnedLists {
  using Offset = typename P::Offset;
  static constexpr int warps = threads / kWarp;
  uint32* found;  // in the part of each warp: the row, and the item in the lower half
  uint32* ends;   // of each row's updates in the list
  unsigned short* list;
  uint32 group, rows, part;

  __device__ __forceinline__ OwnedLists(char* shared, const Sizes<P>& sizes, uint32 group)
      : group(group) {
    const uint32 places = static_cast<uint32>(sizes.destinations());
    rows = places > group ? (places - group - 1) / groups + 1 : 0;
    part = ceil_div<uint32>(static_cast<uint32>(sizes.items()), threads) * kWarp;
    found = reinterpret_cast<uint32*>(shared);
    ends = found + part * warps;
    list = reinterpret_cast<unsigned short*>(ends + rows);
  }

  __device__ __forceinline__ uint32 begin(uint32 row) const { return row ? ends[row - 1] : 0; }
  __device__ __forceinline__ Offset place(uint32 row) const {
    return static_cast<Offset>(row) * groups + group;
  }

  __device__ __forceinline__ void make(const Indices<P>& indices, const Sizes<P>& sizes) const {
    __shared__ uint32 found_by[warps];
    const int warp = threadIdx.x / kWarp;
    for (uint32 row = threadIdx.x; row < rows; row += threads) ends[row] = 0;
    __syncthreads();
    const uint32 mine = find(indices, sizes, found + warp * part);
    if (threadIdx.x % kWarp == 0) found_by[warp] = mine;
    __syncthreads();
    scan_in_block<threads>(ends, rows);
    __syncthreads();
    if (warp == 0)
      for (int other = 0; other < warps; ++other) fill(found + other * part, found_by[other]);
    __syncthreads();
  }

 private:
  // A warp looks through its part of the items, and returns how many are for this block.
  __device__ __forceinline__ uint32 find(const Indices<P>& indices, const Sizes<P>& sizes,
                                         uint32* to) const {
    const int lane = threadIdx.x % kWarp;
    const uint32 first = threadIdx.x / kWarp * part;
    uint32 size = 0;
    for (uint32 start = 0; start < part; start += kWarp * kIndicesAhead) {
      Offset places[kIndicesAhead];
      places_of<P>(places, first + start + lane, kWarp, indices, sizes);
#pragma unroll
      for (int u = 0; u < kIndicesAhead; ++u) {
        if (start + u * kWarp >= part) break;
        const uint32 place = static_cast<uint32>(places[u]);
        const bool is_mine = places[u] < sizes.destinations() && place % groups == group;
        const uint32 all = __ballot_sync(kAllLanes, is_mine);
        if (is_mine) {
          const uint32 row = place / groups, item = first + start + u * kWarp + lane;
          to[size + __popc(all & ((1u << lane) - 1))] = row << 16 | item;
          atomicAdd(&ends[row], 1u);
        }
        size += __popc(all);
      }
    }
    __syncwarp();
    return size;
  }

  // One warp puts each item behind those of the same row. Where rows begin becomes where they end.
  __device__ __forceinline__ void fill(const uint32* entries, uint32 size) const {
    const int lane = threadIdx.x % kWarp;
    for (uint32 start = 0; start < size; start += kWarp) {
      const bool is_entry = start + lane < size;
      const uint32 entry = is_entry ? entries[start + lane] : ~0u;
      const uint32 row = entry >> 16;
      const uint32 peers = __match_any_sync(kAllLanes, row);
      const uint32 rank = __popc(peers & ((1u << lane) - 1));
      if (is_entry) list[ends[row] + rank] = static_cast<unsigned short>(entry);
      __syncwarp();
      if (is_entry && rank == 0) ends[row] += __popc(peers);
      __syncwarp();
    }
  }
};

// What a block does to its rows: `lanes` threads share a row, and take every `spans`-th of the vectors.
template <class P, int threads, int groups, int lanes, int vector, int unroll, bool mean,
          bool in_place>
struct OwnedRows {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  using R = typename P::Reduction;
  using Sum = RowSum<P, vector>;
  using Listed = ListedUpdates<P, unsigned short, vector, true, true>;
  using Held = decltype(static_cast<const Listed*>(nullptr)->read(
      static_cast<const Listed*>(nullptr)->item(0u)));
  static constexpr uint32 teams = threads / lanes;
  // Whether a row without updates stands in the output already.
  static constexpr bool keeps = in_place && !P::filled && !P::Output::finishes;
  const typename P::Output& output;
  const Data* data;
  const typename P::Updates& updates;
  const Sizes<P>& sizes;
  const OwnedLists<P, threads, groups>& lists;
  Offset first, step;

  __device__ __forceinline__ OwnedRows(const typename P::Output& output, const Data* data,
                                       const typename P::Updates& updates, const Sizes<P>& sizes,
                                       const OwnedLists<P, threads, groups>& lists, int span,
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

  // For whole blocks. Each team sums a part of the updates, and the first one adds these up.
  __device__ __forceinline__ void write_long_rows() const {
    if constexpr (!same<R, Update>) {
      __shared__ uint32 listed;
      if (threadIdx.x == 0) listed = 0;
      __syncthreads();
      for (uint32 row = threadIdx.x; row < lists.rows; row += threads)
        if (lists.ends[row] - lists.begin(row) > kLongRow)
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
    const uint32 begin = lists.begin(row), count = lists.ends[row] - begin;
    const uint32 share = ceil_div(count, teams), team = threadIdx.x / lanes;
    const uint32 skip = min(count, team * share), own = min(share, count - skip);
    const Offset lane = static_cast<Offset>(threadIdx.x % lanes) * vector;
    for (Offset base = first; base < sizes.width(); base += step) {
      const Offset column = base + lane;
      const int64 at = static_cast<int64>(lists.place(row)) * sizes.width() + column;
      Sum sum = sum_of_none<P, vector>();
      if (column < sizes.width())
        combine_run<R>(sum, own, updates_from(begin + skip, column));
      held[threadIdx.x] = sum;
      __syncthreads();
      if (team == 0 && column < sizes.width()) {
        for (uint32 other = 1; other * share < count; ++other)
          sum = combine_vectors<R>(sum, held[threadIdx.x + other * lanes]);
        write(at, old(at, count), sum, count);
      }
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
      begin[u] = lists.begin(at);
      count[u] = lists.ends[at] - begin[u];
      if (same<R, Update> && count[u]) {
        begin[u] += count[u] - 1;
        count[u] = 1;
      }
      writes[u] = count[u] <= kLongRow && !(keeps && count[u] == 0);
      if (!writes[u]) continue;
      stands[u] = old(static_cast<int64>(lists.place(at)) * sizes.width() + column, count[u]);
      if (count[u] == 0) continue;
      const Listed listed = updates_from(begin[u], column);
      update[u] = listed.read(listed.item(0));
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (!writes[u]) continue;
      const int64 at =
          static_cast<int64>(lists.place(row + u * teams)) * sizes.width() + column;
      if (count[u] == 0) {
        output.template store<Offset>(at, stands[u]);
        continue;
      }
      Sum sum = sum_of_none<P, vector>();
      add_row<R>(sum, update[u]);
      combine_run<R>(sum, count[u] - 1, updates_from(begin[u] + 1, column));
      write(at, stands[u], sum, count[u]);
    }
  }
};

template <class P, int threads, int groups, int lanes, int vector, int unroll, bool mean,
          bool in_place>
__device__ __forceinline__ void owned_rows(const typename P::Output& output,
                                           const typename P::Data* data,
                                           const typename P::Updates& updates,
                                           const Indices<P>& indices, const Sizes<P>& sizes,
                                           int spans, char* shared) {
  const int group = blockIdx.x / spans;
  const OwnedLists<P, threads, groups> lists(shared, sizes, group);
  lists.make(indices, sizes);
  const OwnedRows<P, threads, groups, lanes, vector, unroll, mean, in_place> rows(
      output, data, updates, sizes, lists, blockIdx.x - group * spans, spans);
  rows.write_long_rows();
  rows.write_short_rows();
}

}  // namespace tvm_scatter
#endif
