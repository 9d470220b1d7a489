// `__shared__ T x[N];` becomes `static CpuCudaShared<T[N]> x_storage; auto& x = x_storage.get();`.
#pragma once
#include "abi.h"

template <class T, size_t kAlignment = alignof(T)>
struct CpuCudaShared {
  T* place;
  unsigned launch;  // for which `place` holds

  T& get() {
    if (launch != cpu_cuda_launch_number) {
      constexpr size_t alignment = kAlignment > alignof(T) ? kAlignment : alignof(T);
      place = static_cast<T*>(cpu_cuda_static_shared(sizeof(T), alignment));
      launch = cpu_cuda_launch_number;
    }
    return *place;
  }
};
