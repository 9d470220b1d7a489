// How the driver calls a kernel whose argument types only the compiler knows.
#pragma once
#include <utility>

#include "abi.h"

template <auto kKernel>
struct CpuCudaCall;

template <class... Arguments, void (*kKernel)(Arguments...)>
struct CpuCudaCall<kKernel> {
  // One more than needed: an array cannot be empty.
  static constexpr size_t sizes[] = {sizeof(Arguments)..., 0};
  static constexpr size_t count = sizeof...(Arguments);

  template <size_t... i>
  static void unpack(void** arguments, std::index_sequence<i...>) {
    kKernel(*static_cast<std::remove_reference_t<Arguments>*>(arguments[i])...);
  }
  static void invoke(void** arguments) {
    unpack(arguments, std::index_sequence_for<Arguments...>{});
  }
};

// The rewriter ends a source with CPU_CUDA_KERNELS(CPU_CUDA_KERNEL(a) CPU_CUDA_KERNEL(b) ...).
#define CPU_CUDA_KERNEL(name) \
  {#name, &CpuCudaCall<&name>::invoke, CpuCudaCall<&name>::sizes, CpuCudaCall<&name>::count},
#define CPU_CUDA_KERNELS(entries)                                               \
  extern "C" __attribute__((visibility("default"))) const CpuCudaKernel         \
      cpu_cuda_kernels[] = {entries{nullptr, nullptr, nullptr, 0}};
