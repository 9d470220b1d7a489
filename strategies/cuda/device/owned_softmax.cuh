// Owned softmax: each block owns some rows of the output, lists their updates in shared memory, in
// order, and adds up those of each row, weighted by the softmax of their logits.
//
// One launch, where an order and the launches behind it would take most of the time. A row with many
// updates is summed by the whole block.
#ifndef TVM_SCATTER_OWNED_SOFTMAX
#define TVM_SCATTER_OWNED_SOFTMAX
#include "owned_lists.cuh"
#include "segmented.cuh"

namespace tvm_scatter {

// A row with more updates is summed by the whole block, by groups of lanes that have at least so many.
constexpr uint32 kLongSoftmax = 32, kLeastShare = 8;

// What a block does to its rows, of which a group of `lanes` threads has one of `tiles` parts.
template <class P, int threads, int groups, int lanes, int vector, bool whole, bool first>
struct OwnedSoftmax {
  using Offset = typename P::Offset;
  using Sum = RowSum<P, vector>;
  using Lists = OwnedLists<P, threads, Residues<groups>>;
  using Share = SegmentShare<P, lanes, vector>;
  static constexpr uint32 teams = threads / lanes;
  const SegmentRows<P, vector, whole, false> rows;
  const typename P::Updates& updates;
  const Sizes<P>& sizes;
  const Lists& lists;
  Sum* held;  // in shared memory, one of each thread
  uint32 tiles;

  // For whole blocks. Each team sums a part of the updates, and the first one adds these up.
  __device__ __forceinline__ void write_long_rows() const {
    __shared__ uint32 listed;
    if (threadIdx.x == 0) listed = 0;
    __syncthreads();
    for (uint32 row = threadIdx.x; row < lists.rows; row += threads)
      if (lists.updates_of(row) > kLongSoftmax) lists.found[atomicAdd(&listed, 1u)] = row;
    __syncthreads();
    for (uint32 i = 0; i < listed; ++i)
      for (uint32 tile = 0; tile < tiles; ++tile) write_long_row(lists.found[i], tile);
  }

  // The parts of rows that a team has, one after the other.
  __device__ __forceinline__ void write_short_rows() const {
    for (uint32 part = threadIdx.x / lanes; part < lists.rows * tiles; part += teams) {
      const Share share(sizes, tiles, part);
      const auto row = static_cast<uint32>(share.row);
      const uint32 count = lists.updates_of(row);
      if (count > kLongSoftmax) continue;
      const int64 place = lists.owner.place(row);
      for (Offset column = share.first; column < sizes.width(); column += share.step) {
        if (count) {
          const Sum sum = sum_of(lists.begins[row], count, place, column, share.writes);
          if (share.writes) write(place, column, sum, count);
        } else if (share.writes) {
          rows.keep(place, column);
        }
      }
    }
  }

 private:
  __device__ __forceinline__ Sum sum_of(uint32 begin, uint32 count, int64 place, Offset column,
                                        bool writes) const {
    const auto own = own_of<P, vector, whole>(updates, place, column);
    const PlaceUpdates<P, unsigned short, lanes, vector, whole, false, first> listed{
        {updates, lists.list + begin, sizes, column}, own, writes};
    Sum sum = sum_of_none<P, vector>();
    combine_run<typename P::Reduction>(sum, count, listed);
    return sum;
  }
  __device__ __forceinline__ void write(int64 place, Offset column, const Sum& sum,
                                        uint32 count) const {
    rows.write(place, column, rows.old(place, column), sum, count);
  }

  __device__ __forceinline__ void write_long_row(uint32 row, uint32 tile) const {
    const uint32 count = lists.updates_of(row), team = threadIdx.x / lanes;
    const uint32 each = max(ceil_div(count, teams), kLeastShare);
    const uint32 skip = min(count, team * each), own = min(each, count - skip);
    const int64 place = lists.owner.place(row);
    const Share share(sizes, tiles, tile);
    // The same turns for the whole block, so some columns may be beyond the width.
    const Offset turns = ceil_div(sizes.width(), share.step);
    for (Offset turn = 0; turn < turns; ++turn) {
      const Offset column = share.first + turn * share.step;
      const bool inside = column < sizes.width();
      if (inside && own)
        held[threadIdx.x] = sum_of(lists.begins[row] + skip, own, place, column, share.writes);
      __syncthreads();
      if (team == 0 && inside && share.writes) {
        Sum sum = held[threadIdx.x];
        for (uint32 other = 1; other * each < count; ++other)
          add_row<typename P::Reduction>(sum, held[threadIdx.x + other * lanes]);
        write(place, column, sum, count);
      }
      __syncthreads();
    }
  }
};

template <class P, int threads, int groups, int lanes, int vector, bool whole, bool first, int ahead>
__device__ __forceinline__ void owned_softmax(const typename P::Output& output,
                                              const typename P::Data* data,
                                              const typename P::Updates& updates,
                                              const Indices<P>& indices, const Sizes<P>& sizes,
                                              uint32 tiles, char* shared, uint32 list_bytes) {
  const OwnedLists<P, threads, Residues<groups>> lists(
      shared, sizes, {blockIdx.x, static_cast<uint32>(sizes.destinations())});
  lists.template make<ahead>(indices, sizes, [](uint32) {});
  auto* const held = reinterpret_cast<RowSum<P, vector>*>(shared + list_bytes);
  const OwnedSoftmax<P, threads, groups, lanes, vector, whole, first> rows{
      {output, data, sizes}, updates, sizes, lists, held, tiles};
  rows.write_long_rows();
  rows.write_short_rows();
}

}  // namespace tvm_scatter
#endif
