// Finding the first index that is out of bounds.
#ifndef TVM_SCATTER_CHECK
#define TVM_SCATTER_CHECK
#include "common.cuh"

namespace tvm_scatter {

// Each status word starts as all ones, which is -1: no bad index.
template <class Index, bool wrap>
__device__ __forceinline__ void find_bad_index(int64* status, const Index* indices, int64 entries,
                                               int stride, int offset, int64 extent) {
  const int64 step = static_cast<int64>(gridDim.x) * blockDim.x;
  const int64 first = static_cast<int64>(blockIdx.x) * blockDim.x + threadIdx.x;
  uint64 bad = ~0ull;
  for (int64 at = first; at < entries; at += step) {
    const int64 index = static_cast<int64>(indices[at * stride + offset]);
    if ((index < (wrap ? -extent : 0) || index >= extent) && bad == ~0ull) bad = at;
  }
  if (bad != ~0ull) atomicMin(reinterpret_cast<uint64*>(status), bad);
}

// One thread, once per component after the search over it: fill in what the message needs.
template <class Index, bool wrap>
__device__ __forceinline__ void describe_bad_index(int64* status, const Index* indices,
                                                   int64 entries, int stride, int offset,
                                                   int64 extent, int component) {
  const int64 at = status[0];
  if (at < 0 || at >= entries) return;
  const int64 index = static_cast<int64>(indices[at * stride + offset]);
  if (index >= (wrap ? -extent : 0) && index < extent) return;
  status[1] = component;
  status[2] = index;
  status[3] = extent;
}

}  // namespace tvm_scatter
#endif
