// Reducing rows whose updates are listed by place: chunks of long lists first, then every row once.
#ifndef TVM_SCATTER_LISTED_ROWS
#define TVM_SCATTER_LISTED_ROWS
#include "atomic.cuh"
#include "overlap.cuh"
#include "place_columns.cuh"

namespace tvm_scatter {

constexpr int kMostReduceThreads = 256;
constexpr uint32 kNone = ~0u;
// A list with more entries than this is reduced in chunks.
constexpr uint32 kLongList = 32;

// Some entries of the list of a place, and the slot of `sums` that their sum goes to.
template <class Key>
struct Chunk {
  uint32 slot, length;
  const Key* items;
  uint32 place;
};

// What a place has: its updates, and either where their list begins or the slot of their sum.
struct Listed {
  uint32 count, at;
  bool summed;
};

template <class P, int vector>
using Sum = Vector<Accumulate<typename P::Data>, vector>;

// For whole blocks: begin the sums of `count` slots.
template <class P>
__device__ __forceinline__ void begin_sums(Accumulate<typename P::Data>* sums, uint32 slot,
                                           uint32 count, const Sizes<P>& sizes) {
  using Wide = Accumulate<typename P::Data>;
  constexpr int vector = 16 / sizeof(Wide);
  const Wide start = widen(P::start());
  const int64 size = count * static_cast<int64>(sizes.width());
  Wide* const first = sums + slot * static_cast<int64>(sizes.width());
  if (sizes.width() % vector == 0 && aligned<Wide, vector>(sums)) {
    const auto some = splat<Wide, vector>(start);
    for (int64 at = threadIdx.x * vector; at < size; at += blockDim.x * vector)
      store<Wide, vector>(first + at, some);
  } else {
    for (int64 at = threadIdx.x; at < size; at += blockDim.x) first[at] = start;
  }
}

// In shared memory: a sum of each thread of the block.
template <class P, int size>
__device__ __forceinline__ Sum<P, size>* held_sums() {
  __shared__ Sum<P, size> held[kMostReduceThreads];
  return held;
}

// Combine the sum of a thread's columns with what stands there.
template <class R, class Wide, class Offset, int lanes, int vector, int columns>
__device__ __forceinline__ void combine_columns(
    Wide* row, const ColumnsApart<Offset, lanes, vector, columns>& own,
    const Vector<Wide, vector * columns>& sum) {
  own.divided(sum, [&](Offset at, const Vector<Wide, vector>& part) {
    atomic_combine_vector<R>(row + at, part);
  });
}

// For whole blocks: combine the sum that each group of lanes holds into a slot, if it has one. Groups
// side by side that have the same one combine their sums before they meet other blocks' there, where
// atomics queue.
template <class P, int lanes, int vector, int columns>
__device__ __forceinline__ void add_sums(
    Accumulate<typename P::Data>* sums, uint32 slot, const Sum<P, vector * columns>* held,
    const ColumnsApart<typename P::Offset, lanes, vector, columns>& own) {
  using R = typename P::Reduction;
  __shared__ uint32 slot_of[kMostReduceThreads / lanes];
  const uint32 teams = blockDim.x / lanes, team = threadIdx.x / lanes;
  if (threadIdx.x % lanes == 0) slot_of[team] = slot;
  __syncthreads();
  const bool leads = slot != kNone && (team == 0 || slot_of[team - 1] != slot);
  if (leads && own.first < own.width) {
    auto sum = held[threadIdx.x];
    for (uint32 other = team + 1; other < teams && slot_of[other] == slot; ++other)
      sum = combine_vectors<R>(sum, held[threadIdx.x + (other - team) * lanes]);
    combine_columns<R>(sums + static_cast<int64>(slot) * own.width, own, sum);
  }
  __syncthreads();
}

// For whole blocks: `visit(own)` with the columns of each thread, in the `tile`-th of `tiles` parts of
// them. The same turns for the whole block, so some may be beyond the width.
template <class P, int lanes, int vector, int columns, class Visit>
__device__ __forceinline__ void for_each_column(const Sizes<P>& sizes, int64 tile, int64 tiles,
                                                Visit visit) {
  using Offset = typename P::Offset;
  constexpr int part = lanes * vector * columns;
  const Offset lane = static_cast<Offset>(threadIdx.x % lanes) * vector;
  for (Offset base = static_cast<Offset>(tile) * part; base < sizes.width();
       base += static_cast<Offset>(tiles) * part)
    visit(ColumnsApart<Offset, lanes, vector, columns>(base + lane, sizes.width()));
}

// For whole blocks: a chunk for each group of lanes; no chunk has `kNone` for a slot.
template <class P, int lanes, int vector, int columns, class Key>
__device__ __forceinline__ void add_chunks(Accumulate<typename P::Data>* sums,
                                           const Chunk<Key>& chunk,
                                           const typename P::Updates& updates, const Sizes<P>& sizes,
                                           int64 tile, int64 tiles) {
  auto* const held = held_sums<P, vector * columns>();
  for_each_column<P, lanes, vector, columns>(sizes, tile, tiles, [&](const auto& own) {
    auto sum = splat<Accumulate<typename P::Data>, vector * columns>(widen(P::start()));
    if (own.first < own.width && chunk.length) {
      const PlaceColumns<P, Key, lanes, vector, columns, true, true, true> rows(
          updates, chunk.items, sizes, chunk.place, own);
      combine_run<typename P::Reduction>(sum, chunk.length, rows);
    }
    held[threadIdx.x] = sum;
    add_sums<P, lanes, vector, columns>(sums, chunk.slot, held, own);
  });
}

// A group of lanes for each row of the output, or for each of `tiles` parts of it: `lists.find(row)`
// says what is listed for a row, and `lists.list` holds the items. `columns` and `apart` as of `RowShare`.
// If this begins `early`, sums and their counts are waited for, and nothing else.
template <class P, int lanes, int vector, int columns, bool mean, bool in_place, bool apart,
          bool early, class Lists>
__device__ __forceinline__ void write_rows(const typename P::Output& output,
                                           const typename P::Data* data,
                                           const Accumulate<typename P::Data>* sums,
                                           const Lists& lists, const typename P::Updates& updates,
                                           const Sizes<P>& sizes, int64 tiles) {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  using Wide = Accumulate<Data>;
  using Key = typename Lists::Key;
  const int64 rows_apart = apart ? static_cast<int64>(sizes.destinations()) : 0;
  const RowShare<P, lanes, vector, columns> share(tiles, rows_apart);
  if (share.row >= sizes.destinations()) return;
  const Offset width = sizes.width();
  Listed listed;
  if constexpr (early) {
    // Sums are added up meanwhile, and updates are counted.
    listed = lists.find_anew(share.row);
    if (listed.summed) {
      wait_for_launches();
      // All else stays as it was, and takes no registers twice.
      listed.count = lists.find_anew(share.row).count;
    }
  } else {
    listed = lists.find(share.row);
  }
  for (Offset column = share.first; column < width; column += share.step) {
    const ColumnsApart<Offset, lanes, vector, columns> own(column, width);
    const int64 row = share.row * width;
    Vector<Data, vector * columns> result;
    auto begin_with_data = [&] {
      result = own.template joined<Data>(
          [&](int number) { return data_at<P, vector>(data, row + own.at(number)); });
    };
    // Before anything depends on the count, unless the data may not be needed at all.
    constexpr bool keeps = in_place && !P::filled && !P::Output::finishes;
    if constexpr (!keeps) begin_with_data();
    if (keeps && listed.count == 0) return;
    if (keeps && P::include_self) begin_with_data();
    if (listed.count) {
      auto sum = splat<Wide, vector * columns>(widen(P::start()));
      if (listed.summed) {
        const Wide* const from = sums + static_cast<int64>(listed.at) * width;
        sum = own.template joined<Wide>([&](int number) {
          const Wide* const part = from + own.at(number);
          return early ? look<Wide, vector>(part) : load<Wide, vector>(part);
        });
      } else {
        const PlaceColumns<P, Key, lanes, vector, columns, true, true> rows(
            updates, lists.list + listed.at, sizes, share.row, own);
        combine_run<typename P::Reduction>(sum, listed.count, rows);
      }
      result = result_of<P, vector * columns, mean>(result, sum, listed.count);
    }
    own.divided(result, [&](Offset at, const Vector<Data, vector>& part) {
      output.template store<Offset>(row + at, part);
    });
  }
}

}  // namespace tvm_scatter
#endif
