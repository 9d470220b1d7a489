// As `sum_updates`, where rows have few updates: the groups of lanes of a block share those of its rows
// that have more. A group that begins late with such a row would be what all wait for.
#ifndef TVM_SCATTER_SHARED_ROWS
#define TVM_SCATTER_SHARED_ROWS
#include "segmented.cuh"

namespace tvm_scatter {

// A row of so many updates takes one group no longer than it takes all of them, of which none has fewer
// than the second number.
constexpr uint32 kLeastShared = 16, kLeastOfShare = 4;

// The rows that a block shares, and the sums of its groups.
template <class P, int lanes, int vector, int threads, int rows_each>
struct SharedRows {
  uint32 count;
  int64 places[threads / lanes * rows_each];
  RowSum<P, vector> sums[threads];
};

// For whole blocks. Rows of `usual` updates are not shared, and those of more than `longest` have pieces.
template <class P, class Key, int lanes, int vector, bool whole, bool mean, bool first, int rows_each,
          int threads, class Keys, class List>
__device__ __forceinline__ void sum_and_share(const PieceSums<P>& ready,
                                              const typename P::Output& output,
                                              const typename P::Data* data,
                                              const typename P::Updates& updates, const Keys& keys,
                                              const Key* begins, const Key* ends, const List items,
                                              const Sizes<P>& sizes, uint32 longest, uint32 usual,
                                              int bits) {
  using Entry = decltype(entry_of(items));
  using Offset = typename P::Offset;
  using Sum = RowSum<P, vector>;
  __shared__ SharedRows<P, lanes, vector, threads, rows_each> shared;
  if (threadIdx.x == 0) shared.count = 0;
  __syncthreads();
  const int64 slots = ready.slots;
  const SegmentShare<P, lanes, vector> share(sizes, 1, first_in_grid() / lanes);
  const SegmentRows<P, vector, whole, mean> rows{output, data, sizes};
  const Offset width = sizes.width();
  const auto sum_of = [&](int64 place, int64 begin, int64 count, Offset column) {
    const auto own = own_of<P, vector, whole>(updates, place, column);
    const PlaceUpdates<P, Entry, lanes, vector, whole, false, first> sorted{
        {updates, items + begin, sizes, column}, own, share.writes};
    Sum sum = sum_of_none<P, vector>();
    combine_run<typename P::Reduction>(sum, static_cast<uint32>(count), sorted);
    return sum;
  };
  const auto sum_piece = [&]() {
    int64 place;
    const SegmentRange range = segment_of<P>(keys, share.row << bits, begins, ends, sizes, place);
    if (!range.exceeds(longest)) return;
    const Pieces<int64> pieces(range.begin, range.end, bits);
    if (!pieces.has(share.row)) return;
    const auto slot = static_cast<uint32>(share.row);
    const int64 begin = pieces.begin_of(slot), end = pieces.begin_of(slot + 1);
    for (Offset column = share.first; column < width; column += share.step) {
      const Sum sum = sum_of(place, begin, end - begin, column);
      if (share.writes) ready.template at<vector>(sizes, slot, column) = sum;
    }
    add_up_pieces<P, lanes, vector, 1>(ready, begins, ends, place, sizes, share, bits, 1, rows);
  };
  const auto sum_row = [&](int64 place, const SegmentRange& range) {
    const int64 count = range.end - range.begin;
    for (Offset column = share.first; column < width; column += share.step) {
      if (count <= 0) {
        if (share.writes) rows.keep(place, column);
        continue;
      }
      const auto old = rows.old(place, column);
      const Sum sum = sum_of(place, range.begin, count, column);
      if (share.writes) rows.write(place, column, old, sum, count);
    }
  };
  const auto sum_rows = [&](int64 place) {
    int left = static_cast<int>(min(sizes.destinations() - place, static_cast<int64>(rows_each)));
    if (left <= 0) return;
    Key begin = begins[place], end = ends[place];
    for (;;) {
      Key next_begin, next_end;
      const bool goes_on = --left > 0;
      if (goes_on) next_begin = begins[place + 1], next_end = ends[place + 1];
      const SegmentRange range = SegmentRange::of(begin, end, sizes.items());
      if (!range.exceeds(usual)) {
        sum_row(place, range);
      } else if (!range.exceeds(longest) && threadIdx.x % lanes == 0) {
        shared.places[atomicAdd(&shared.count, 1u)] = place;
      }
      if (!goes_on) break;
      begin = next_begin, end = next_end;
      ++place;
    }
  };
  if (share.row < slots) {
    sum_piece();
  } else {
    sum_rows((share.row - slots) * rows_each);
  }
  __syncthreads();
  constexpr uint32 teams = threads / lanes;
  const uint32 team = threadIdx.x / lanes;
  for (uint32 i = 0; i < shared.count; ++i) {
    const int64 place = shared.places[i];
    const SegmentRange range = SegmentRange::of(begins, ends, place, sizes.items());
    const auto count = static_cast<uint32>(range.end - range.begin);
    const uint32 each = max(ceil_div(count, teams), kLeastOfShare);
    const uint32 skip = min(count, team * each), own = min(each, count - skip);
    // The same turns for the whole block, so some columns may be beyond the width.
    const Offset turns = ceil_div(width, share.step);
    for (Offset turn = 0; turn < turns; ++turn) {
      const Offset column = share.first + turn * share.step;
      const bool inside = column < width;
      if (inside && own) shared.sums[threadIdx.x] = sum_of(place, range.begin + skip, own, column);
      __syncthreads();
      if (team == i % teams && inside && share.writes) {
        const Sum* const sums = shared.sums + threadIdx.x % lanes;
        Sum sum = sums[0];
        for (uint32 other = 1; other * each < count; ++other)
          add_row<typename P::Reduction>(sum, sums[other * lanes]);
        rows.write(place, column, rows.old(place, column), sum, count);
      }
      __syncthreads();
    }
  }
}

}  // namespace tvm_scatter
#endif
