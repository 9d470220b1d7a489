// Split bins: an output that is larger than the shared memory of a block is divided among several. Each
// of them reads all updates of its share and combines those of its part of the bins.
//
// The blocks of one share are neighbours, so that they read the same updates at about the same time:
// once from memory, and then from the L2 cache.
#ifndef TVM_SCATTER_SPLIT_BINS
#define TVM_SCATTER_SPLIT_BINS
#include "bins.cuh"
#include "grid.cuh"

namespace tvm_scatter {

// `partials[share][bin]`: a block writes its part of its share's bins, side by side.
template <class P, int parts, int unroll>
__device__ __forceinline__ void fill_split_bins(Accumulate<typename P::Data>* partials,
                                                const typename P::Updates& updates,
                                                const Indices<P>& indices, const Sizes<P>& sizes,
                                                char* shared) {
  using Wide = Accumulate<typename P::Data>;
  Wide* const bins = reinterpret_cast<Wide*>(shared + bins_begin<P>);
  const int size = static_cast<int>(sizes.data_size());
  const int most = ceil_div(size, parts);
  const int first = blockIdx.x % parts * most;
  const int owned = max(min(most, size - first), 0);
  const int share = blockIdx.x / parts, shares = gridDim.x / parts;
  for (int i = threadIdx.x; i < owned; i += blockDim.x) bins[i] = widen(P::start());
  __syncthreads();
  // Marked as read once: the other parts read it at the same time, and nobody does afterwards.
  for_each_update<P, unroll, true, true>(
      updates, indices, sizes, share * blockDim.x + threadIdx.x, shares * blockDim.x, shared,
      [&](int bin, typename P::Data value) {
        const uint32 in_part = static_cast<uint32>(bin - first);
        if (in_part < static_cast<uint32>(owned))
          shared_combine<typename P::Reduction, Wide>(bins + in_part, widen(value));
      });
  __syncthreads();
  Wide* const to = partials + static_cast<int64>(share) * size + first;
  for (int i = threadIdx.x; i < owned; i += blockDim.x) to[i] = bins[i];
}

// One thread for each bin combines the shares' partial results with what stands there.
template <class P>
__device__ __forceinline__ void merge_shares(typename P::Data* out, const typename P::Data* base,
                                             const Accumulate<typename P::Data>* partials,
                                             int shares, const Sizes<P>& sizes) {
  using Data = typename P::Data;
  using Wide = Accumulate<Data>;
  using R = typename P::Reduction;
  const int64 size = sizes.data_size();
  for (int64 bin = first_in_grid(); bin < size; bin += threads_in_grid()) {
    Wide sum = widen(P::start());
#pragma unroll 8
    for (int share = 0; share < shares; ++share)
      sum = R::combine(sum, partials[share * size + bin]);
    // Arithmetic with nothing may change the bits of a NaN, or of a denormal.
    const bool untouched = is_float<Data> && is_start<P>(sum);
    out[bin] = untouched ? base[bin] : combine_into<R>(base[bin], sum);
  }
}

}  // namespace tvm_scatter
#endif
