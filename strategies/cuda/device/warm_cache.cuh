// Asking for what a later launch reads, while memory has little else to do.
#ifndef TVM_SCATTER_WARM_CACHE
#define TVM_SCATTER_WARM_CACHE
#include "common.cuh"

#ifndef TSAP
#define TSAP 0
#endif
namespace tvm_scatter {

// For all threads of a launch: bring so many bytes into the L2 cache. Nothing waits for them.
template <uint32 kPiece>
__device__ __forceinline__ void warm_cache(const void* from, int64 bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && !defined(TVM_SCATTER_NO_PTX)
  const uint64 start = __cvta_generic_to_global(from);
  const uint64 begin = (start + 15) & ~uint64(15), end = (start + bytes) & ~uint64(15);
  const uint64 thread = static_cast<uint64>(threadIdx.x) * gridDim.x + blockIdx.x;
  const uint64 step = static_cast<uint64>(gridDim.x) * blockDim.x * kPiece;
  for (uint64 at = begin + thread * kPiece; at < end; at += step) {
    const uint32 size = min(static_cast<uint64>(kPiece), end - at);
    if (kPiece == 128) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at) : "memory"); continue; }
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(at), "r"(size) : "memory");
  }
#endif
}

__device__ __forceinline__ void warm_cache_here(const void* from, uint32 bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && !defined(TVM_SCATTER_NO_PTX)
  const uint64 start = __cvta_generic_to_global(from);
  const uint64 begin = (start + 15) & ~uint64(15), end = (start + bytes) & ~uint64(15);
  const uint32 size = end - begin;
  if (TSAP) for (uint64 at = begin; at < end; at += 128) asm volatile("prefetch.global.L2 [%0];" ::"l"(at) : "memory");
  else if (begin < end) asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(begin), "r"(size) : "memory");
#endif
}

}  // namespace tvm_scatter
#endif
