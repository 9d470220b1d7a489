// What the types of computed updates are made of: see codegen/computed.py, which writes them.
#ifndef TVM_SCATTER_COMPUTED
#define TVM_SCATTER_COMPUTED
#include "common.cuh"

namespace tvm_scatter {

// `count` neighbours; one access if their offset is known to be a multiple of enough elements.
template <int count, int multiple, class T>
__device__ __forceinline__ Vector<T, count> load_row(const T* from) {
  if constexpr (multiple % count == 0) return load<T, count>(from);
  Vector<T, count> result;
#pragma unroll
  for (int i = 0; i < count; ++i) result.at[i] = from[i];
  return result;
}

// A 32-bit value as the 16-bit type has it.
template <class T>
__device__ __forceinline__ float rounded(float value) {
  return widen(narrow<T>(value));
}

// Products of their own: the compiler must not join them with a sum, which would round once less.
__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double product(double a, double b) { return __dmul_rn(a, b); }

// Integers wrap around: an index that is out of bounds may be any number, and what is computed from
// it before it is found to be bad must not be undefined.
template <class T>
__device__ __forceinline__ T product(T a, T b) {
  return static_cast<T>(static_cast<uint64>(a) * static_cast<uint64>(b));
}
template <class T>
__device__ __forceinline__ T sum(T a, T b) {
  return static_cast<T>(static_cast<uint64>(a) + static_cast<uint64>(b));
}
template <class T>
__device__ __forceinline__ T difference(T a, T b) {
  return static_cast<T>(static_cast<uint64>(a) - static_cast<uint64>(b));
}

template <class T>
__device__ __forceinline__ T floor_div(T a, T b) {
  const T quotient = a / b;
  return quotient - static_cast<T>(a % b != 0 && (a % b < 0) != (b < 0));
}
template <class T>
__device__ __forceinline__ T floor_mod(T a, T b) {
  const T rest = a % b;
  return rest + (rest != 0 && (rest < 0) != (b < 0) ? b : T(0));
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

}  // namespace tvm_scatter
#endif
