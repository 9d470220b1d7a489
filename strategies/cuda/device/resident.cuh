// Row resident: what one batch scatters into is held in shared memory, read once and written once.
#ifndef TVM_SCATTER_RESIDENT
#define TVM_SCATTER_RESIDENT
#include "atomic.cuh"
#include "problem.cuh"

namespace tvm_scatter {

// A block holds `tile` elements of one batch's slab of extent x slice; a slab that is larger is cut
// into tiles, and every block of it looks at all indices of the batch.
template <class P, int unroll>
__device__ __forceinline__ void resident(typename P::Data* out, const typename P::Data* data,
                                         const typename P::Data* updates,
                                         const Indices<P>& indices, const Sizes<P>& sizes,
                                         char* shared, int tile, typename P::Offset tiles) {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  using Wide = Accumulate<Data>;
  using R = typename P::Reduction;
  Wide* const held = reinterpret_cast<Wide*>(shared);
  const Offset batch = blockIdx.x / tiles;
  const Offset slab = sizes.extent() * sizes.slice;
  const Offset begin = (blockIdx.x - batch * tiles) * tile;
  const int owned = static_cast<int>(min(static_cast<Offset>(tile), slab - begin));
  const Data* const from = data + batch * slab + begin;
  Data* const to = out + batch * slab + begin;
  constexpr int vector = 16 / sizeof(Data);
  const bool whole = owned % vector == 0 && aligned<Data, vector>(from) && aligned<Data, vector>(to);

  if (whole) {
    for (int i = threadIdx.x * vector; i < owned; i += blockDim.x * vector) {
      const auto value = load<Data, vector>(from + i);
#pragma unroll
      for (int j = 0; j < vector; ++j) held[i + j] = widen(value.at[j]);
    }
  } else {
    for (int i = threadIdx.x; i < owned; i += blockDim.x) held[i] = widen(from[i]);
  }
  __syncthreads();

  const Offset total = sizes.count * sizes.slice;
  // The place of update element `at` of this batch in `held`; negative if it is not for this block.
  auto find = [&](Offset at, Offset& update) -> Offset {
    const Offset k = sizes.slice == 1 ? at : at / sizes.slice;
    const Offset s = at - k * sizes.slice;
    const Offset row = batch * sizes.count + k;
    const Item<P> item(sizes, P::index_slice ? row * sizes.slice + s : row);
    Offset destination;
    if (!find_destination(sizes, indices, item.index, destination)) return -1;
    update = P::index_slice || !P::update_slice ? item.update : item.update + s;
    const Offset place = destination * sizes.slice + s - begin;
    return place < owned ? place : -1;
  };
  if constexpr (!P::include_self && !same<R, Update>) {
    for (Offset at = threadIdx.x; at < total; at += blockDim.x) {
      Offset update;
      const Offset place = find(at, update);
      if (place >= 0) held[place] = widen(P::start());
    }
    __syncthreads();
  }
  for (Offset start = threadIdx.x; start < total; start += blockDim.x * unroll) {
    Offset place[unroll];
    Data value[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const Offset at = start + u * static_cast<Offset>(blockDim.x);
      place[u] = -1;
      Offset update;
      if (at < total) place[u] = find(at, update);
      if (place[u] >= 0) value[u] = updates[update];
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (place[u] >= 0) atomic_combine<R, Wide>(held + place[u], widen(value[u]));
  }
  __syncthreads();
  if (whole) {
    for (int i = threadIdx.x * vector; i < owned; i += blockDim.x * vector) {
      Vector<Data, vector> value;
#pragma unroll
      for (int j = 0; j < vector; ++j) value.at[j] = narrow<Data>(held[i + j]);
      store<Data, vector>(to + i, value);
    }
  } else {
    for (int i = threadIdx.x; i < owned; i += blockDim.x) to[i] = narrow<Data>(held[i]);
  }
}

}  // namespace tvm_scatter
#endif
