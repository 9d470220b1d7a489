// Column resident: some neighbouring columns of one batch are held in shared memory, read once and
// written once. Blocks of one batch share no updates, where each column has its own.
#ifndef TVM_SCATTER_COLUMN_RESIDENT
#define TVM_SCATTER_COLUMN_RESIDENT
#include "atomic.cuh"
#include "problem.cuh"

namespace tvm_scatter {

// A block holds `columns` columns of a batch, of which there are as many blocks as cover the slice.
template <class P, int columns, int unroll>
struct ResidentColumns {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  using Wide = Accumulate<Data>;
  using R = typename P::Reduction;
  const typename P::Updates& updates;
  const Indices<P>& indices;
  const Sizes<P>& sizes;
  Wide* const held;
  const Offset batch, first;  // and the first column

  // Calls `visit(place in held, element of the batch)` for all elements that the block owns.
  template <class Visit>
  __device__ __forceinline__ void for_each_element(Visit visit) const {
    const Offset total = sizes.extent() * columns;
    for (Offset at = threadIdx.x; at < total; at += blockDim.x) {
      const Offset row = at / columns, column = first + at % columns;
      if (column < sizes.slice) visit(at, row * sizes.slice + column);
    }
  }

  __device__ __forceinline__ Item<P> item_at(Offset k, Offset column) const {
    const Offset row = batch * sizes.count + k;
    return Item<P>(sizes, P::index_slice ? row * sizes.slice + column : row);
  }

  // Calls `visit(place in held, update)` for all updates of the block's columns. With `values` they
  // are read before any is visited.
  template <bool values, class Visit>
  __device__ __forceinline__ void for_each_update(Visit visit) const {
    const Offset total = sizes.count * columns;
    for (Offset start = threadIdx.x; start < total; start += blockDim.x * unroll) {
      RawIndex<P> raw[unroll];
      Data value[unroll];
      bool inside[unroll];
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        const Offset at = start + u * static_cast<Offset>(blockDim.x);
        const Offset column = first + at % columns;
        inside[u] = at < total && column < sizes.slice;
        if (!inside[u]) continue;
        const Item<P> item = item_at(at / columns, column);
        raw[u] = read_index(indices, item.index);
        if constexpr (values)
          value[u] =
              updates[P::index_slice || !P::update_slice ? item.update : item.update + column];
      }
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        const Offset at = start + u * static_cast<Offset>(blockDim.x);
        Offset destination;
        if (inside[u] && resolve(sizes, raw[u], destination))
          visit(destination * columns + at % columns, value[u]);
      }
    }
  }
};

template <class P, int columns, int unroll>
__device__ __forceinline__ void resident_columns(const typename P::Output& output,
                                                 const typename P::Data* data,
                                                 const typename P::Updates& updates,
                                                 const Indices<P>& indices, const Sizes<P>& sizes,
                                                 char* shared) {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  using Wide = Accumulate<Data>;
  using R = typename P::Reduction;
  Wide* const held = reinterpret_cast<Wide*>(shared);
  const Offset parts = ceil_div<Offset>(sizes.slice, columns);
  const Offset batch = blockIdx.x / parts;
  if (batch >= sizes.batch) return;  // one block is launched even for no batch at all
  const ResidentColumns<P, columns, unroll> mine{
      updates, indices, sizes, held, batch, static_cast<Offset>(blockIdx.x - batch * parts) * columns};
  const Offset slab = sizes.extent() * sizes.slice;
  mine.for_each_element([&](Offset at, Offset element) {
    held[at] = widen_bits(data_at<P, 1>(data, batch * slab + element).at[0]);
  });
  __syncthreads();
  if constexpr (!P::include_self && !same<R, Update>) {
    mine.template for_each_update<false>(
        [&](Offset place, Data) { held[place] = widen(P::start()); });
    __syncthreads();
  }
  mine.template for_each_update<true>([&](Offset place, Data value) {
    shared_combine<R, Wide>(held + place, widen(value));
  });
  __syncthreads();
  mine.for_each_element([&](Offset at, Offset element) {
    output.template store<Offset>(batch * slab + element,
                                  Vector<Data, 1>{{narrow_bits<Data>(held[at])}});
  });
}

}  // namespace tvm_scatter
#endif
