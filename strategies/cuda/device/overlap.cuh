// Kernels that are launched while the one before them ends.
#ifndef TVM_SCATTER_OVERLAP
#define TVM_SCATTER_OVERLAP

namespace tvm_scatter {

// The next kernel may be launched as soon as all threads of this one have come here or ended.
__device__ __forceinline__ void let_next_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && !defined(TVM_SCATTER_NO_PTX)
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until all that was launched before this kernel has ended and its results can be read.
__device__ __forceinline__ void wait_for_launches() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && !defined(TVM_SCATTER_NO_PTX)
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// For all threads of a kernel, first of all. A kernel that does not wait must be launched the usual way.
__device__ __forceinline__ void begin_overlapped() {
  let_next_begin();
  wait_for_launches();
}

// The same where the next kernel may read what others have written before this one, without waiting
// for it: all of that has ended when the next kernel begins.
__device__ __forceinline__ void begin_overlapped_in_order() {
  wait_for_launches();
  let_next_begin();
}

// The same for that next kernel, which waits itself before it reads what the one before it writes. It
// must not end before that one, because what is launched later waits for this one only.
__device__ __forceinline__ void begin_overlapped_early() {
  let_next_begin();
  if (blockIdx.x + 1 == gridDim.x) wait_for_launches();
}

}  // namespace tvm_scatter
#endif
