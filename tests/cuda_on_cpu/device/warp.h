// Warp shuffles, votes, matches and reductions.
#pragma once
#include <cstring>

#include "abi.h"

// CUDA has these overloads and no others: a char is promoted, a struct is an error.
#define CPU_CUDA_SHUFFLES(T)                                                                     \
  static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "as in CUDA");               \
  inline T cpu_cuda_shuffle(int kind, unsigned mask, T value, unsigned operand, int width,       \
                            int line) {                                                          \
    uint64_t bits = 0;                                                                           \
    memcpy(&bits, &value, sizeof value);                                                         \
    bits = cpu_cuda_warp_collective(kind, mask, bits, operand, width, line);                     \
    memcpy(&value, &bits, sizeof value);                                                         \
    return value;                                                                                \
  }                                                                                              \
  inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32,                         \
                       int line = __builtin_LINE()) {                                            \
    return cpu_cuda_shuffle(kCpuCudaShuffle, mask, value, static_cast<unsigned>(lane), width,    \
                            line);                                                               \
  }                                                                                              \
  inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,                \
                          int line = __builtin_LINE()) {                                         \
    return cpu_cuda_shuffle(kCpuCudaShuffleUp, mask, value, delta, width, line);                 \
  }                                                                                              \
  inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,              \
                            int line = __builtin_LINE()) {                                       \
    return cpu_cuda_shuffle(kCpuCudaShuffleDown, mask, value, delta, width, line);               \
  }                                                                                              \
  inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,                \
                           int line = __builtin_LINE()) {                                        \
    return cpu_cuda_shuffle(kCpuCudaShuffleXor, mask, value, static_cast<unsigned>(lane_mask),   \
                            width, line);                                                        \
  }
CPU_CUDA_SHUFFLES(int)
CPU_CUDA_SHUFFLES(unsigned)
CPU_CUDA_SHUFFLES(long)
CPU_CUDA_SHUFFLES(unsigned long)
CPU_CUDA_SHUFFLES(long long)
CPU_CUDA_SHUFFLES(unsigned long long)
CPU_CUDA_SHUFFLES(float)
CPU_CUDA_SHUFFLES(double)
CPU_CUDA_SHUFFLES(__half)
CPU_CUDA_SHUFFLES(__half2)
CPU_CUDA_SHUFFLES(__nv_bfloat16)
CPU_CUDA_SHUFFLES(__nv_bfloat162)
#undef CPU_CUDA_SHUFFLES

inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return static_cast<unsigned>(
      cpu_cuda_warp_collective(kCpuCudaBallot, mask, predicate != 0, 0, 32, line));
}
inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return __ballot_sync(mask, predicate, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return __ballot_sync(mask, predicate, line) == cpu_cuda_met();
}

// Which lanes happen to run together is nobody's promise; a lane alone is always right.
inline unsigned __activemask() {
  unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  return 1u << thread % 32;
}

#define CPU_CUDA_MATCH(T)                                                                        \
  inline unsigned __match_any_sync(unsigned mask, T value, int line = __builtin_LINE()) {        \
    uint64_t bits = 0;                                                                           \
    memcpy(&bits, &value, sizeof value);                                                         \
    return static_cast<unsigned>(                                                                \
        cpu_cuda_warp_collective(kCpuCudaMatchAny, mask, bits, 0, 32, line));                    \
  }                                                                                              \
  inline unsigned __match_all_sync(unsigned mask, T value, int* all,                             \
                                   int line = __builtin_LINE()) {                                \
    unsigned same = __match_any_sync(mask, value, line);                                         \
    *all = same == cpu_cuda_met();                                                               \
    return *all ? same : 0;                                                                      \
  }
CPU_CUDA_MATCH(int)
CPU_CUDA_MATCH(unsigned)
CPU_CUDA_MATCH(long)
CPU_CUDA_MATCH(unsigned long)
CPU_CUDA_MATCH(long long)
CPU_CUDA_MATCH(unsigned long long)
CPU_CUDA_MATCH(float)
CPU_CUDA_MATCH(double)
#undef CPU_CUDA_MATCH

#define CPU_CUDA_REDUCE(name, T, kind)                                                     \
  inline T name(unsigned mask, T value, int line = __builtin_LINE()) {                     \
    return static_cast<T>(cpu_cuda_warp_collective(kind, mask, static_cast<uint32_t>(value), 0, \
                                                   32, line));                             \
  }
CPU_CUDA_REDUCE(__reduce_add_sync, int, kCpuCudaReduceAdd)
CPU_CUDA_REDUCE(__reduce_add_sync, unsigned, kCpuCudaReduceAdd)
CPU_CUDA_REDUCE(__reduce_min_sync, int, kCpuCudaReduceMinSigned)
CPU_CUDA_REDUCE(__reduce_min_sync, unsigned, kCpuCudaReduceMinUnsigned)
CPU_CUDA_REDUCE(__reduce_max_sync, int, kCpuCudaReduceMaxSigned)
CPU_CUDA_REDUCE(__reduce_max_sync, unsigned, kCpuCudaReduceMaxUnsigned)
CPU_CUDA_REDUCE(__reduce_and_sync, unsigned, kCpuCudaReduceAnd)
CPU_CUDA_REDUCE(__reduce_or_sync, unsigned, kCpuCudaReduceOr)
CPU_CUDA_REDUCE(__reduce_xor_sync, unsigned, kCpuCudaReduceXor)
#undef CPU_CUDA_REDUCE
