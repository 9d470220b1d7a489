// Reducing runs of equal places in a sorted list, in an order that depends on the list alone.
//
// The list is cut into chunks of a fixed number of entries. A group of lanes walks one chunk and
// writes every run that begins and ends in it. A run that crosses a chunk's border leaves a partial
// result instead: one for the first run of the chunk and one for the last. These partials are again
// a sorted list, sixteen times shorter, and are reduced the same way until one chunk is left. A
// destination that takes every update is so reduced by the whole GPU, in a fixed tree.
#ifndef TVM_SCATTER_SEGMENT
#define TVM_SCATTER_SEGMENT
#include "problem.cuh"
#include "reduction.cuh"

namespace tvm_scatter {

constexpr int kChunk = 32;

// For a plain update: of each run only the last entry counts.
template <class P, class Key, int lanes, int vector>
__device__ __forceinline__ void write_last(typename P::Data* out,
                                           const typename P::Updates& updates, const Key* keys,
                                           const Key* items, const Sizes<P>& sizes) {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  const int64 thread = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64 groups = static_cast<int64>(gridDim.x) * blockDim.x / lanes;
  const int64 size = sizes.items();
  const Offset width = sizes.width();
  for (int64 at = thread / lanes; at < size; at += groups) {
    const Key key = keys[at];
    if (key == static_cast<Key>(sizes.destinations())) continue;
    if (at + 1 < size && keys[at + 1] == key) continue;
    const Item<P> item(sizes, static_cast<Offset>(items[at]));
    for (Offset column = static_cast<Offset>(thread % lanes) * vector; column < width;
         column += lanes * vector) {
      const auto value = P::update_slice
                             ? updates.template load<vector>(item.update,
                                                               P::index_slice ? 0 : column)
                             : splat<Data, vector>(updates[item.update]);
      store<Data, vector>(out + static_cast<Offset>(key) * width + column, value);
    }
  }
}

// The partial results of one level. `pending` says which slots hold one.
template <class P, class Key>
struct Partials {
  Key* keys;
  unsigned char* pending;
  Accumulate<typename P::Data>* values;  // slot by slot, `width` to a slot
};

// Reduce one level: `size` entries, either the updates in sorted order (`from` is null: first level)
// or the partials of the level before.
template <class P, class Key, int lanes, int vector, bool first_level>
__device__ __forceinline__ void reduce_segments(typename P::Data* out,
                                                const typename P::Updates& updates, const Key* keys,
                                                const Key* items, Partials<P, Key> from,
                                                Partials<P, Key> to, int64 size,
                                                const Sizes<P>& sizes) {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  using Wide = Accumulate<Data>;
  using R = typename P::Reduction;
  const int64 thread = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64 chunk = thread / lanes;
  const int64 begin = chunk * kChunk;
  if (begin >= size) return;
  const int64 end = min(begin + kChunk, size);
  const Key* const list = first_level ? keys : from.keys;
  const Key dropped = static_cast<Key>(sizes.destinations());
  const Offset width = sizes.width();
  const bool from_before = begin > 0 && list[begin - 1] == list[begin];
  const bool to_after = end < size && list[end] == list[end - 1];
  const bool last_chunk = size <= kChunk;

  for (Offset column = static_cast<Offset>(thread % lanes) * vector; column < width;
       column += lanes * vector) {
    Vector<Wide, vector> sum;
    bool any = false;       // whether `sum` holds anything
    int64 run = begin;      // where the run began
    bool first_pending = false, last_pending = false;
    for (int64 at = begin; at < end; ++at) {
      const Key key = list[at];
      if (first_level || from.pending[at]) {
        Vector<Wide, vector> value;
        if constexpr (first_level) {
          const Item<P> item(sizes, static_cast<Offset>(items[at]));
          if constexpr (P::update_slice) {
            const auto stored =
                updates.template load<vector>(item.update, P::index_slice ? 0 : column);
#pragma unroll
            for (int i = 0; i < vector; ++i) value.at[i] = widen(stored.at[i]);
          } else {
            value = splat<Wide, vector>(widen(updates[item.update]));
          }
        } else {
#pragma unroll
          for (int i = 0; i < vector; ++i) value.at[i] = from.values[at * width + column + i];
        }
        if (any) {
#pragma unroll
          for (int i = 0; i < vector; ++i) sum.at[i] = R::combine(sum.at[i], value.at[i]);
        } else {
          sum = value;
          any = true;
        }
      }
      if (at + 1 < end && list[at + 1] == key) continue;

      // The run ends here, or the chunk does.
      const bool first_run = run == begin, last_run = at + 1 == end;
      const bool open = (first_run && from_before) || (last_run && to_after);
      if (any && key != dropped) {
        if (open) {
          const int64 slot = 2 * chunk + (first_run ? 0 : 1);
#pragma unroll
          for (int i = 0; i < vector; ++i) to.values[slot * width + column + i] = sum.at[i];
          (first_run ? first_pending : last_pending) = true;
        } else {
          Data* const at_out = out + static_cast<Offset>(key) * width + column;
#pragma unroll
          for (int i = 0; i < vector; ++i)
            at_out[i] = P::include_self ? combine_into<R>(at_out[i], sum.at[i])
                                        : stored<R, Data>(sum.at[i]);
        }
      }
      any = false;
      run = at + 1;
    }
    if (!last_chunk && column == 0) {
      to.keys[2 * chunk] = list[begin];
      to.keys[2 * chunk + 1] = list[end - 1];
      to.pending[2 * chunk] = first_pending;
      to.pending[2 * chunk + 1] = last_pending;
    }
  }
}

}  // namespace tvm_scatter
#endif
