// What the host asked of the device, in order, for tests that count.
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" {

enum CpuCudaEvent : int {
  kCpuCudaLaunch,
  kCpuCudaCopyToDevice,
  kCpuCudaCopyToHost,
  kCpuCudaCopyOnDevice,
  kCpuCudaSynchronize,
  kCpuCudaAllocate,
  kCpuCudaFree,
  kCpuCudaGraphLaunch,
};

struct CpuCudaLogEntry {
  int kind;
  int captured;  // 1: recorded into a graph and not run; 2: run from a graph
  char name[256];
  unsigned grid[3], block[3];
  int overlapped;  // whether a launch need not wait for the one before it
  uint64_t bytes;  // copied, allocated or freed; a launch's dynamic shared memory
};

size_t cpu_cuda_log_size();
void cpu_cuda_log_get(size_t i, CpuCudaLogEntry* entry);
void cpu_cuda_log_clear();
}

namespace cpu_cuda {

void log_event(CpuCudaEvent kind, uint64_t bytes, int captured = 0, const char* name = "");
void log_entry(const CpuCudaLogEntry& entry);

}  // namespace cpu_cuda
