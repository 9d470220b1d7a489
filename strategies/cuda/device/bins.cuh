// Private bins: the whole output stands in the shared memory of every block, several times over.
#ifndef TVM_SCATTER_BINS
#define TVM_SCATTER_BINS
#include "atomic.cuh"
#include "problem.cuh"

namespace tvm_scatter {

// A block reduces its share of the updates into `copies` copies of the bins and writes their
// combination to its own row of `partials`. With 32 copies each lane has its own, in its own bank:
// lanes never meet, however the indices repeat.
template <class P, int copies, int unroll>
__device__ __forceinline__ void fill_bins(Accumulate<typename P::Data>* partials,
                                          const typename P::Data* updates,
                                          const Indices<P>& indices, const Sizes<P>& sizes,
                                          char* shared) {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  using Wide = Accumulate<Data>;
  using R = typename P::Reduction;
  Wide* const bins = reinterpret_cast<Wide*>(shared);
  const int size = static_cast<int>(sizes.data_size());
  const Wide start = widen(P::start());
  for (int i = threadIdx.x; i < size * copies; i += blockDim.x) bins[i] = start;
  __syncthreads();

  const int copy = threadIdx.x % copies;
  const Offset width = sizes.width();
  const Offset total = sizes.items() * width;
  const Offset step = static_cast<Offset>(gridDim.x) * blockDim.x;
  for (Offset first = static_cast<Offset>(blockIdx.x) * blockDim.x + threadIdx.x; first < total;
       first += step * unroll) {
    RawIndex<P> raw[unroll];
    Data value[unroll];
    int bin[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const Offset at = first + u * step;
      if (at >= total) continue;
      const Offset index = width == 1 ? at : at / width;
      const Item<P> item(sizes, index);
      raw[u] = read_index(indices, item.index);
      value[u] = updates[P::update_slice && !P::index_slice ? item.update + at - index * width
                                                            : item.update];
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const Offset at = first + u * step;
      bin[u] = -1;
      if (at >= total) continue;
      const Offset index = width == 1 ? at : at / width;
      Offset destination;
      if (resolve(sizes, raw[u], destination))
        bin[u] = static_cast<int>(Item<P>(sizes, index).place(sizes, destination) * width + at -
                                  index * width);
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (bin[u] >= 0) atomic_combine<R, Wide>(bins + bin[u] * copies + copy, widen(value[u]));
  }
  __syncthreads();
  for (int i = threadIdx.x; i < size; i += blockDim.x) {
    Wide sum = start;
    // Each thread begins at another copy, or all would read one bank.
#pragma unroll
    for (int c = 0; c < copies; ++c)
      sum = R::combine(sum, bins[i * copies + (c + threadIdx.x) % copies]);
    partials[static_cast<int64>(blockIdx.x) * size + i] = sum;
  }
}

// One warp to a block, and bins for each lane: no two threads ever write one address, so nothing is
// atomic and the order of every sum is fixed by the launch.
template <class P, int unroll>
__device__ __forceinline__ void fill_lane_bins(Accumulate<typename P::Data>* partials,
                                               const typename P::Data* updates,
                                               const Indices<P>& indices, const Sizes<P>& sizes,
                                               char* shared) {
  using Offset = typename P::Offset;
  using Data = typename P::Data;
  using Wide = Accumulate<Data>;
  using R = typename P::Reduction;
  Wide* const bins = reinterpret_cast<Wide*>(shared);
  const int size = static_cast<int>(sizes.data_size());
  const int lane = threadIdx.x;
  const Wide start = widen(P::start());
  for (int i = 0; i < size; ++i) bins[i * kWarp + lane] = start;

  const Offset total = sizes.items();
  const Offset step = static_cast<Offset>(gridDim.x) * kWarp;
  for (Offset first = static_cast<Offset>(blockIdx.x) * kWarp + lane; first < total;
       first += step * unroll) {
    RawIndex<P> raw[unroll];
    Data value[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const Offset at = first + u * step;
      if (at >= total) continue;
      const Item<P> item(sizes, at);
      raw[u] = read_index(indices, item.index);
      value[u] = updates[item.update];
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const Offset at = first + u * step;
      Offset destination;
      if (at >= total || !resolve(sizes, raw[u], destination)) continue;
      const int bin = static_cast<int>(Item<P>(sizes, at).place(sizes, destination));
      Wide* const mine = bins + bin * kWarp + lane;
      *mine = R::combine(*mine, widen(value[u]));
    }
  }
  __syncwarp();
  for (int i = lane; i < size; i += kWarp) {
    Wide sum = start;
    // Each lane begins at another copy, or all would read one bank; the order is fixed all the same.
#pragma unroll
    for (int c = 0; c < kWarp; ++c)
      sum = R::combine(sum, bins[i * kWarp + (c + lane) % kWarp]);
    partials[static_cast<int64>(blockIdx.x) * size + i] = sum;
  }
}

// One warp for each bin combines the blocks' partial results with what stands there.
template <class P>
__device__ __forceinline__ void merge_bins(typename P::Data* out, const typename P::Data* base,
                                           const Accumulate<typename P::Data>* partials,
                                           int rows, const Sizes<P>& sizes) {
  using Data = typename P::Data;
  using Wide = Accumulate<Data>;
  using R = typename P::Reduction;
  const int size = static_cast<int>(sizes.data_size());
  const int bin = (blockIdx.x * blockDim.x + threadIdx.x) / kWarp;
  const int lane = threadIdx.x % kWarp;
  if (bin >= size) return;
  Wide sum = widen(P::start());
  for (int row = lane; row < rows; row += kWarp)
    sum = R::combine(sum, partials[static_cast<int64>(row) * size + bin]);
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const Bits<Wide> other = __shfl_down_sync(kAllLanes, bit_cast<Bits<Wide>>(sum), distance);
    sum = R::combine(sum, bit_cast<Wide>(other));
  }
  if (lane == 0) out[bin] = narrow<Data>(R::combine(widen(base[bin]), sum));
}

}  // namespace tvm_scatter
#endif
