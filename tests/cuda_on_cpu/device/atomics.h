// Atomics: plain reads and writes, since a fibre is never interrupted in the middle of one.
//
// The overloads are CUDA's, so that what does not compile there does not compile here.
#pragma once
#include "abi.h"

inline void cpu_cuda_atomic() {
  if (--cpu_cuda_atomics_until_yield <= 0) cpu_cuda_yield_at_atomic();
}

// No templates: g++ would make them anew for each source, though they are in the precompiled header.
#define CPU_CUDA_ATOMIC(name, T, expression) \
  inline T name(T* address, T value) {       \
    cpu_cuda_atomic();                       \
    T old = *address;                        \
    *address = expression;                   \
    return old;                              \
  }
// Signed sums wrap on a GPU; to the host compiler that is undefined.
#define CPU_CUDA_INTEGER_ATOMICS(T, U)                                                     \
  CPU_CUDA_ATOMIC(atomicAdd, T, static_cast<T>(static_cast<U>(old) + static_cast<U>(value))) \
  CPU_CUDA_ATOMIC(atomicMin, T, value < old ? value : old)                                 \
  CPU_CUDA_ATOMIC(atomicMax, T, value > old ? value : old)                                 \
  CPU_CUDA_ATOMIC(atomicAnd, T, old& value)                                                \
  CPU_CUDA_ATOMIC(atomicOr, T, old | value)                                                \
  CPU_CUDA_ATOMIC(atomicXor, T, old ^ value)                                               \
  CPU_CUDA_ATOMIC(atomicExch, T, value)
CPU_CUDA_INTEGER_ATOMICS(int, unsigned)
CPU_CUDA_INTEGER_ATOMICS(unsigned, unsigned)
CPU_CUDA_INTEGER_ATOMICS(unsigned long long, unsigned long long)
#undef CPU_CUDA_INTEGER_ATOMICS

CPU_CUDA_ATOMIC(atomicMin, long long, value < old ? value : old)
CPU_CUDA_ATOMIC(atomicMax, long long, value > old ? value : old)
CPU_CUDA_ATOMIC(atomicAnd, long long, old& value)
CPU_CUDA_ATOMIC(atomicOr, long long, old | value)
CPU_CUDA_ATOMIC(atomicXor, long long, old ^ value)
CPU_CUDA_ATOMIC(atomicSub, int, static_cast<int>(static_cast<unsigned>(old) - static_cast<unsigned>(value)))
CPU_CUDA_ATOMIC(atomicSub, unsigned, old - value)
CPU_CUDA_ATOMIC(atomicInc, unsigned, old >= value ? 0u : old + 1u)
CPU_CUDA_ATOMIC(atomicDec, unsigned, old == 0u || old > value ? value : old - 1u)
CPU_CUDA_ATOMIC(atomicAdd, float, old + value)
CPU_CUDA_ATOMIC(atomicAdd, double, old + value)
CPU_CUDA_ATOMIC(atomicExch, float, value)
CPU_CUDA_ATOMIC(atomicAdd, __half, __hadd(old, value))
CPU_CUDA_ATOMIC(atomicAdd, __half2, __hadd2(old, value))
CPU_CUDA_ATOMIC(atomicAdd, __nv_bfloat16, __hadd(old, value))
CPU_CUDA_ATOMIC(atomicAdd, __nv_bfloat162, __hadd2(old, value))
CPU_CUDA_ATOMIC(atomicAdd, float2, (float2{old.x + value.x, old.y + value.y}))
CPU_CUDA_ATOMIC(atomicAdd, float4,
                (float4{old.x + value.x, old.y + value.y, old.z + value.z, old.w + value.w}))
#undef CPU_CUDA_ATOMIC

#define CPU_CUDA_COMPARE_AND_SWAP(T)                     \
  inline T atomicCAS(T* address, T expected, T value) {  \
    cpu_cuda_atomic();                                   \
    T old = *address;                                    \
    if (old == expected) *address = value;               \
    return old;                                          \
  }
CPU_CUDA_COMPARE_AND_SWAP(int)
CPU_CUDA_COMPARE_AND_SWAP(unsigned)
CPU_CUDA_COMPARE_AND_SWAP(unsigned long long)
CPU_CUDA_COMPARE_AND_SWAP(unsigned short)
#undef CPU_CUDA_COMPARE_AND_SWAP

// The scopes differ only in speed.
#define CPU_CUDA_SCOPES(name)                                          \
  template <class... A>                                                \
  inline auto name##_block(A... a) -> decltype(name(a...)) { return name(a...); } \
  template <class... A>                                                \
  inline auto name##_system(A... a) -> decltype(name(a...)) { return name(a...); }
CPU_CUDA_SCOPES(atomicAdd)
CPU_CUDA_SCOPES(atomicMin)
CPU_CUDA_SCOPES(atomicMax)
CPU_CUDA_SCOPES(atomicAnd)
CPU_CUDA_SCOPES(atomicOr)
CPU_CUDA_SCOPES(atomicXor)
CPU_CUDA_SCOPES(atomicExch)
CPU_CUDA_SCOPES(atomicCAS)
#undef CPU_CUDA_SCOPES
