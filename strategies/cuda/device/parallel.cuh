// Parallel: every update at once. A group of lanes takes one item; each lane takes some columns.
#ifndef TVM_SCATTER_PARALLEL
#define TVM_SCATTER_PARALLEL
#include "atomic.cuh"
#include "problem.cuh"

namespace tvm_scatter {

// `lanes` threads share an item, `vector` elements form one access, and each group has `unroll`
// items in flight.
template <class P, int lanes, int vector, int unroll>
__device__ __forceinline__ void scatter_items(typename P::Data* out,
                                              const typename P::Updates& updates,
                                              const Indices<P>& indices, const Sizes<P>& sizes) {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  using R = typename P::Reduction;
  const Offset thread = static_cast<Offset>(blockIdx.x) * blockDim.x + threadIdx.x;
  const Offset groups = static_cast<Offset>(gridDim.x) * blockDim.x / lanes;
  const Offset width = sizes.width();
  const Offset items = sizes.items();
  const Offset lane = thread % lanes * vector;
  for (Offset start = thread / lanes; start < items; start += groups * unroll) {
    Offset to[unroll], from[unroll];
    bool valid[unroll];
    RawIndex<P> raw[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const Offset at = start + u * groups;
      valid[u] = at < items;
      if (!valid[u]) continue;
      const Item<P> item(sizes, at);
      from[u] = item.update;
      raw[u] = read_index(indices, item.index);
    }
    for (Offset column = lane; column < width; column += lanes * vector) {
      Vector<Data, vector> held[unroll];
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        if (start + u * groups >= items) continue;
        if constexpr (P::update_slice) {
          const Offset at = P::index_slice ? 0 : column;
          held[u] = P::update_batch ? updates.template load_once<vector>(from[u], at)
                                    : updates.template load<vector>(from[u], at);
        } else {
          held[u] = splat<Data, vector>(updates[from[u]]);
        }
      }
      if (column == lane) {
#pragma unroll
        for (int u = 0; u < unroll; ++u) {
          if (!valid[u]) continue;
          Offset destination;
          valid[u] = resolve(sizes, raw[u], destination);
          if (valid[u]) to[u] = Item<P>(sizes, start + u * groups).place(sizes, destination) * width;
        }
      }
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        if (!valid[u]) continue;
        Data* at = out + to[u] + column;
        if constexpr (P::unique && !same<R, Update>) {
          Vector<Data, vector> old = load<Data, vector>(at);
#pragma unroll
          for (int i = 0; i < vector; ++i)
            old.at[i] = combine_stored<R>(old.at[i], held[u].at[i]);
          store<Data, vector>(at, old);
        } else {
          atomic_combine_vector<R, Data, vector>(at, held[u]);
        }
      }
    }
  }
}

template <class P, int lanes, int vector, int unroll>
__device__ __forceinline__ void parallel(typename P::Data* out,
                                         const typename P::Updates& updates,
                                         const Indices<P>& indices, const Sizes<P>& sizes) {
  if (aligned<typename P::Data, vector>(out) &&
      (!P::update_slice || updates.template aligned<vector>())) {
    scatter_items<P, lanes, vector, unroll>(out, updates, indices, sizes);
  } else {
    scatter_items<P, lanes, 1, 1>(out, updates, indices, sizes);
  }
}

}  // namespace tvm_scatter
#endif
