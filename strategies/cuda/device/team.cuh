// What threads of a warp or of a block find out together.
#ifndef TVM_SCATTER_TEAM
#define TVM_SCATTER_TEAM
#include "block_scan.cuh"

namespace tvm_scatter {

__device__ __forceinline__ uint32 sum_of_warp(uint32 value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_add_sync(kAllLanes, value);
#else
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(kAllLanes, value, distance);
  return value;
#endif
}

// The threads that look at one line together: a warp, or a block of them.
template <int threads>
struct Team {
  static constexpr int kWarps = threads / kWarp;

  int thread = threadIdx.x % threads;

  __device__ __forceinline__ void wait() const {
    if constexpr (kWarps == 1) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }

  // All values combined. Two rows of shared memory take turns, so that one wait is enough.
  template <class T, class Combine>
  __device__ __forceinline__ T all(T value, Combine combine) {
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2)
      value = combine(value, static_cast<T>(__shfl_xor_sync(kAllLanes, value, distance)));
    if constexpr (kWarps > 1) {
      __shared__ int64 of_warps[2][kWarps];
      int64* const mine = of_warps[turn];
      turn ^= 1;
      if (thread % kWarp == 0) mine[thread / kWarp] = static_cast<int64>(value);
      __syncthreads();
      value = static_cast<T>(mine[0]);
#pragma unroll
      for (int w = 1; w < kWarps; ++w) value = combine(value, static_cast<T>(mine[w]));
    }
    return value;
  }

  // The sum of all counts.
  __device__ __forceinline__ uint32 sum(uint32 count) {
    count = sum_of_warp(count);
    if constexpr (kWarps > 1) {
      __shared__ uint32 of_warps[2][kWarps];
      uint32* const mine = of_warps[turn];
      turn ^= 1;
      const int lane = thread % kWarp;
      if (lane == 0) mine[thread / kWarp] = count;
      __syncthreads();
      count = sum_of_warp(lane < kWarps ? mine[lane] : 0);
    }
    return count;
  }

  // The sum over the threads before this one, and over all.
  __device__ __forceinline__ uint32 before(uint32 value, uint32& total) const {
    if constexpr (kWarps == 1) {
      const uint32 inclusive = inclusive_in_warp(value);
      total = __shfl_sync(kAllLanes, inclusive, kWarp - 1);
      return inclusive - value;
    } else {
      return exclusive_in_block<threads>(value, total);
    }
  }

 private:
  int turn = 0;
};

}  // namespace tvm_scatter
#endif
