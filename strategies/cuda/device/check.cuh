// Finding the first index that is out of bounds.
#ifndef TVM_SCATTER_CHECK
#define TVM_SCATTER_CHECK
#include "common.cuh"

namespace tvm_scatter {

constexpr int kMostComponents = 64;

// A bad entry of an index tensor; a position of -1 says that there is none.
struct BadIndex {
  int64 position, component, index, extent;

  // Orders bad entries; components of different lengths may be bad at one position.
  __device__ __forceinline__ uint64 order() const {
    return static_cast<uint64>(position) * kMostComponents + component;
  }
};

// The first bad entry that this thread sees of the part of a component that is its block's.
// Entries are read several at a time: a branch on each would wait for each.
template <class Index, bool wrap, int at_once>
__device__ __forceinline__ void find_bad_index(BadIndex& first, const Index* indices, int64 entries,
                                               int stride, int offset, int64 extent,
                                               int component) {
  const int64 share = (entries + gridDim.x - 1) / gridDim.x;
  const int64 begin = share * blockIdx.x;
  const int64 end = begin + share < entries ? begin + share : entries;
  const int64 lowest = wrap ? -extent : 0;
  for (int64 from = begin + threadIdx.x; from < end; from += at_once * blockDim.x) {
    int64 index[at_once];
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      const int64 at = from + j * static_cast<int64>(blockDim.x);
      index[j] = at < end ? static_cast<int64>(indices[at * stride + offset]) : 0;
    }
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      const int64 at = from + j * static_cast<int64>(blockDim.x);
      const bool bad = at < end && (index[j] < lowest || index[j] >= extent);
      if (bad && (first.position < 0 || at < first.position))
        first = {at, component, index[j], extent};
    }
  }
}

// Each block raises a flag in memory of the host: good, or bad once the thread that has seen the first
// bad entry of the block has described it.
template <class Describe>
__device__ __forceinline__ void post_finding(const BadIndex& first, volatile int64* flag,
                                             int64 good, int64 bad, Describe describe) {
  __shared__ uint64 least;
  if (threadIdx.x == 0) least = ~0ull;
  if (!__syncthreads_or(first.position >= 0)) {
    if (threadIdx.x == 0) *flag = good;
    return;
  }
  if (first.position >= 0) atomicMin(&least, first.order());
  __syncthreads();
  if (first.position < 0 || first.order() != least) return;
  describe();
  __threadfence_system();
  *flag = bad;
}

}  // namespace tvm_scatter
#endif
