// Sums over the threads of a block that come before this one.
#ifndef TVM_SCATTER_BLOCK_SCAN
#define TVM_SCATTER_BLOCK_SCAN
#include "common.cuh"

namespace tvm_scatter {

// The sum of `value` over the lanes up to and including this one.
__device__ __forceinline__ uint32 inclusive_in_warp(uint32 value) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const uint32 below = __shfl_up_sync(kAllLanes, value, distance);
    if (lane >= distance) value += below;
  }
  return value;
}

// The sum of `value` over the threads before this one, and over all of them.
template <int threads>
__device__ __forceinline__ uint32 exclusive_in_block(uint32 value, uint32& total) {
  __shared__ uint32 warps[threads / kWarp];
  const int warp = threadIdx.x / kWarp;
  const uint32 inclusive = inclusive_in_warp(value);
  if (threadIdx.x % kWarp == kWarp - 1) warps[warp] = inclusive;
  __syncthreads();
  uint32 before = 0;
  total = 0;
#pragma unroll
  for (int w = 0; w < threads / kWarp; ++w) {
    if (w < warp) before += warps[w];
    total += warps[w];
  }
  __syncthreads();
  return before + inclusive - value;
}

// For one block: values become the sums of those before them, and `visit(at, value)` follows for each
// with what it was. Returns the sum of all.
template <int threads, class Size, class Visit>
__device__ __forceinline__ uint32 scan_in_block(uint32* values, Size size, Visit visit) {
  uint32 carry = 0;
  for (Size first = 0; first < size; first += threads) {
    const Size at = first + threadIdx.x;
    const uint32 value = at < size ? values[at] : 0;
    uint32 total;
    const uint32 before = exclusive_in_block<threads>(value, total);
    if (at < size) {
      values[at] = carry + before;
      visit(at, value);
    }
    carry += total;
  }
  return carry;
}
template <int threads, class Size>
__device__ __forceinline__ uint32 scan_in_block(uint32* values, Size size) {
  return scan_in_block<threads>(values, size, [](Size, uint32) {});
}

}  // namespace tvm_scatter
#endif
