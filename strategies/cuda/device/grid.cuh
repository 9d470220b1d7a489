// Grid-stride loops: over elements, and over every item of a problem with the place it goes to.
#ifndef TVM_SCATTER_GRID
#define TVM_SCATTER_GRID
#include "problem.cuh"

namespace tvm_scatter {

// Where this thread starts in a grid-stride loop, and how far each step goes.
__device__ __forceinline__ int64 first_in_grid() {
  return static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ int64 threads_in_grid() {
  return static_cast<int64>(gridDim.x) * blockDim.x;
}

template <class T>
__device__ __forceinline__ void fill(T* to, T value, int64 size) {
  for (int64 at = first_in_grid(); at < size; at += threads_in_grid()) to[at] = value;
}

// The place of an item whose index was read, or the number of places if it is dropped.
template <class P>
__device__ __forceinline__ typename P::Offset place_of(typename P::Offset at,
                                                       const RawIndex<P>& raw,
                                                       const Sizes<P>& sizes) {
  typename P::Offset destination;
  return resolve(sizes, raw, destination) ? Item<P>(sizes, at).place(sizes, destination)
                                          : sizes.destinations();
}

// The places of `count` items, `step` apart from `first` on: all their indices are read before any is
// resolved. Past the end it is the number of places, as for an update that is dropped.
template <class P, int count>
__device__ __forceinline__ void places_of(typename P::Offset (&places)[count], int64 first,
                                          int64 step, const Indices<P>& indices,
                                          const Sizes<P>& sizes) {
  using Offset = typename P::Offset;
  const int64 items = sizes.items();
  RawIndex<P> raw[count];
#pragma unroll
  for (int u = 0; u < count; ++u) {
    const int64 at = first + u * step;
    if (at < items) raw[u] = read_index(indices, Item<P>(sizes, static_cast<Offset>(at)).index);
  }
#pragma unroll
  for (int u = 0; u < count; ++u) {
    const int64 at = first + u * step;
    places[u] = at < items ? place_of(static_cast<Offset>(at), raw[u], sizes) : sizes.destinations();
  }
}

// Calls `visit(at, place)` for every item, in a grid-stride loop with the index reads of `unroll`
// items in flight. Whole warps call it together: a lane past the end gets the number of places, and
// an `at` that is no item.
template <class P, int unroll, class Visit>
__device__ __forceinline__ void for_each_place(const Indices<P>& indices, const Sizes<P>& sizes,
                                               Visit visit) {
  const int64 step = threads_in_grid();
  const int lane = threadIdx.x % kWarp;
  for (int64 start = first_in_grid() - lane; start < sizes.items(); start += step * unroll) {
    typename P::Offset places[unroll];
    places_of<P>(places, start + lane, step, indices, sizes);
#pragma unroll
    for (int u = 0; u < unroll; ++u) visit(start + u * step + lane, places[u]);
  }
}

}  // namespace tvm_scatter
#endif
