// Kernels that are launched while the one before them ends.
#ifndef TVM_SCATTER_OVERLAP
#define TVM_SCATTER_OVERLAP

namespace tvm_scatter {

// For all threads of a kernel, first of all: the next kernel may be launched as soon as all blocks of
// this one are, and this one waits until all that was launched before it has ended and its results
// can be read. So a kernel that does not wait must be launched the usual way.
__device__ __forceinline__ void begin_overlapped() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && !defined(TVM_SCATTER_NO_PTX)
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace tvm_scatter
#endif
