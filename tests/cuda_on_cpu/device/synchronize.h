// Barriers, fences, and what ends or delays a thread.
#pragma once
#include <ctime>

#include "abi.h"

// The line of the call names the barrier, in error messages and to tell barriers apart.
inline void __syncthreads(int line = __builtin_LINE()) { cpu_cuda_block_barrier(0, line); }
inline int __syncthreads_count(int predicate, int line = __builtin_LINE()) {
  return static_cast<int>(cpu_cuda_block_barrier(predicate, line) & 0xffffu);
}
inline int __syncthreads_or(int predicate, int line = __builtin_LINE()) {
  return (cpu_cuda_block_barrier(predicate, line) & 0xffffu) != 0;
}
inline int __syncthreads_and(int predicate, int line = __builtin_LINE()) {
  unsigned r = cpu_cuda_block_barrier(predicate, line);
  return (r & 0xffffu) == r >> 16;
}
inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
  cpu_cuda_warp_collective(kCpuCudaSyncWarp, mask, 0, 0, 32, line);
}

// One thread of the process runs all of them, so memory is always consistent.
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

inline void __nanosleep(unsigned) { cpu_cuda_yield(); }

[[noreturn]] inline void __trap(int line = __builtin_LINE()) {
  cpu_cuda_fail("__trap()", "generated source", line);
}
inline void __brkpt() { __trap(); }

#undef assert
#define assert(condition) \
  ((condition) ? (void)0 : cpu_cuda_fail("assertion failed: " #condition, __FILE__, __LINE__))

inline long long clock64() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}
inline unsigned long long __globaltimer() { return static_cast<unsigned long long>(clock64()); }
