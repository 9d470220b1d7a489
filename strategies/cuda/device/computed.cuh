// What the types of computed updates are made of: see codegen/computed.py, which writes them.
#ifndef TVM_SCATTER_COMPUTED
#define TVM_SCATTER_COMPUTED
#include "common.cuh"
#include "reduction.cuh"

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

// One of two vectors: in words of 32 bits, whatever the elements are.
template <class T, int count>
__device__ __forceinline__ Vector<T, count> chosen(bool first, const Vector<T, count>& a,
                                                   const Vector<T, count>& b) {
  if constexpr (sizeof(T) < 4 && sizeof(T) * count % 4 == 0) {
    using Words = Vector<uint32, sizeof(T) * count / 4>;
    return bit_cast<Vector<T, count>>(chosen(first, bit_cast<Words>(a), bit_cast<Words>(b)));
  } else {
    Vector<T, count> result;
#pragma unroll
    for (int i = 0; i < count; ++i) result.at[i] = first ? a.at[i] : b.at[i];
    return result;
  }
}

// Sums, differences and products of 16-bit floats, rounded once: in 32 bits and then to 16 they are
// the same (S. Figueroa, "When is double rounding innocuous?", SIGNUM Newsletter 30(3), 1995). An
// instruction takes two elements, and the compiler must not join a product with a sum.
struct RoundedSum {
  static __device__ __forceinline__ float of(float a, float b) { return a + b; }
  template <class Pair>
  static __device__ __forceinline__ Pair of_pair(Pair a, Pair b) {
    return __hadd2_rn(a, b);
  }
};
struct RoundedDifference {
  static __device__ __forceinline__ float of(float a, float b) { return a - b; }
  template <class Pair>
  static __device__ __forceinline__ Pair of_pair(Pair a, Pair b) {
    return __hsub2_rn(a, b);
  }
};
struct RoundedProduct {
  static __device__ __forceinline__ float of(float a, float b) { return a * b; }
  template <class Pair>
  static __device__ __forceinline__ Pair of_pair(Pair a, Pair b) {
    return __hmul2_rn(a, b);
  }
};

// The lesser and the greater of a 16-bit float and a number, which is what is left of a NaN.
struct LesserNumber {
  static __device__ __forceinline__ float of(float a, float b) { return fminf(a, b); }
  template <class Pair>
  static __device__ __forceinline__ Pair of_pair(Pair a, Pair b) {
    return __hmin2(a, b);
  }
};
struct GreaterNumber {
  static __device__ __forceinline__ float of(float a, float b) { return fmaxf(a, b); }
  template <class Pair>
  static __device__ __forceinline__ Pair of_pair(Pair a, Pair b) {
    return __hmax2(a, b);
  }
};

// The greater of two 16-bit floats, or a NaN if one of them is.
struct GreaterOrNan {
  static __device__ __forceinline__ float of(float a, float b) { return Max::combine(a, b); }
  template <class Pair>
  static __device__ __forceinline__ Pair of_pair(Pair a, Pair b) {
    return __hmax2_nan(a, b);
  }
};

template <class Operator, class T, int count>
__device__ __forceinline__ Vector<T, count> rounded(const Vector<T, count>& a,
                                                    const Vector<T, count>& b) {
  Vector<T, count> result;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (count % 2 == 0) {
    using Pairs = Vector<Pair<T>, count / 2>;
    const auto left = bit_cast<Pairs>(a), right = bit_cast<Pairs>(b);
    Pairs pairs;
#pragma unroll
    for (int i = 0; i < count / 2; ++i) pairs.at[i] = Operator::of_pair(left.at[i], right.at[i]);
    return bit_cast<Vector<T, count>>(pairs);
  }
#endif
#pragma unroll
  for (int i = 0; i < count; ++i)
    result.at[i] = narrow<T>(Operator::of(widen(a.at[i]), widen(b.at[i])));
  return result;
}

// Comparisons of 16-bit floats. Of pairs they have all bits of an element where they hold.
struct IsLess {
  static __device__ __forceinline__ bool of(float a, float b) { return a < b; }
  template <class Pair>
  static __device__ __forceinline__ uint32 of_pair(Pair a, Pair b) {
    return __hlt2_mask(a, b);
  }
};
struct IsAtMost {
  static __device__ __forceinline__ bool of(float a, float b) { return a <= b; }
  template <class Pair>
  static __device__ __forceinline__ uint32 of_pair(Pair a, Pair b) {
    return __hle2_mask(a, b);
  }
};
struct IsGreater {
  static __device__ __forceinline__ bool of(float a, float b) { return a > b; }
  template <class Pair>
  static __device__ __forceinline__ uint32 of_pair(Pair a, Pair b) {
    return __hgt2_mask(a, b);
  }
};
struct IsAtLeast {
  static __device__ __forceinline__ bool of(float a, float b) { return a >= b; }
  template <class Pair>
  static __device__ __forceinline__ uint32 of_pair(Pair a, Pair b) {
    return __hge2_mask(a, b);
  }
};
struct IsEqual {
  static __device__ __forceinline__ bool of(float a, float b) { return a == b; }
  template <class Pair>
  static __device__ __forceinline__ uint32 of_pair(Pair a, Pair b) {
    return __heq2_mask(a, b);
  }
};
struct IsUnequal {
  static __device__ __forceinline__ bool of(float a, float b) { return a != b; }
  template <class Pair>
  static __device__ __forceinline__ uint32 of_pair(Pair a, Pair b) {
    return __hneu2_mask(a, b);
  }
};

// The elements of one vector where a comparison holds, and of another where it does not.
template <class Comparison, class T, int count>
__device__ __forceinline__ Vector<T, count> chosen_where(const Vector<T, count>& a,
                                                         const Vector<T, count>& b,
                                                         const Vector<T, count>& yes,
                                                         const Vector<T, count>& no) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if constexpr (count % 2 == 0) {
    using Pairs = Vector<Pair<T>, count / 2>;
    using Words = Vector<uint32, count / 2>;
    const auto left = bit_cast<Pairs>(a), right = bit_cast<Pairs>(b);
    const auto first = bit_cast<Words>(yes), second = bit_cast<Words>(no);
    Words words;
#pragma unroll
    for (int i = 0; i < count / 2; ++i) {
      const uint32 holds = Comparison::of_pair(left.at[i], right.at[i]);
      words.at[i] = (first.at[i] & holds) | (second.at[i] & ~holds);
    }
    return bit_cast<Vector<T, count>>(words);
  }
#endif
  Vector<T, count> result;
#pragma unroll
  for (int i = 0; i < count; ++i)
    result.at[i] = Comparison::of(widen(a.at[i]), widen(b.at[i])) ? yes.at[i] : no.at[i];
  return result;
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
