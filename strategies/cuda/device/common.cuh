// Types, bit casts and constants that every device routine uses.
#ifndef TVM_SCATTER_COMMON
#define TVM_SCATTER_COMMON
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace tvm_scatter {

using int64 = long long;
using uint64 = unsigned long long;
using uint32 = unsigned int;

constexpr int kWarp = 32;
constexpr uint32 kAllLanes = 0xffffffffu;

// One byte that is 0 or 1: `bool` without the compiler's assumptions about other bit patterns.
struct Boolean {
  unsigned char value;
};

template <class A, class B>
struct Same {
  static constexpr bool value = false;
};
template <class A>
struct Same<A, A> {
  static constexpr bool value = true;
};
template <class A, class B>
constexpr bool same = Same<A, B>::value;

template <bool condition, class A, class B>
struct If {
  using type = A;
};
template <class A, class B>
struct If<false, A, B> {
  using type = B;
};

template <class T>
constexpr bool is_half = same<T, __half> || same<T, __nv_bfloat16>;
template <class T>
constexpr bool is_float = same<T, float> || same<T, double> || is_half<T>;

template <int bytes>
struct BitsOf;
template <>
struct BitsOf<1> {
  using type = unsigned char;
};
template <>
struct BitsOf<2> {
  using type = unsigned short;
};
template <>
struct BitsOf<4> {
  using type = uint32;
};
template <>
struct BitsOf<8> {
  using type = uint64;
};
template <class T>
using Bits = typename BitsOf<sizeof(T)>::type;

template <int bytes>
struct SignedBitsOf;
template <>
struct SignedBitsOf<2> {
  using type = short;
};
template <>
struct SignedBitsOf<4> {
  using type = int;
};
template <>
struct SignedBitsOf<8> {
  using type = int64;
};
template <class T>
using SignedBits = typename SignedBitsOf<sizeof(T)>::type;

template <class To, class From>
__device__ __forceinline__ To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast needs types of one size");
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

// What a value is accumulated in: 16-bit floats in 32 bits, everything else as it is.
template <class T>
struct AccumulateIn {
  using type = T;
};
template <>
struct AccumulateIn<__half> {
  using type = float;
};
template <>
struct AccumulateIn<__nv_bfloat16> {
  using type = float;
};
template <class T>
using Accumulate = typename AccumulateIn<T>::type;

__device__ __forceinline__ float widen(__half value) { return __half2float(value); }
// A shift, because the conversion instruction of sm_90 runs at a quarter of its rate or less.
__device__ __forceinline__ float widen(__nv_bfloat16 value) {
  return bit_cast<float>(static_cast<uint32>(bit_cast<unsigned short>(value)) << 16);
}
template <class T>
__device__ __forceinline__ T widen(T value) {
  return value;
}

template <class T>
__device__ __forceinline__ T narrow(Accumulate<T> value) {
  if constexpr (same<T, __half>) {
    return __float2half(value);
  } else if constexpr (same<T, __nv_bfloat16>) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    // Two at once, of which one is zero: the instruction for one runs at a quarter of the rate.
    return __low2bfloat16(__floats2bfloat162_rn(value, 0.0f));
#else
    return __float2bfloat16(value);
#endif
  } else {
    return value;
  }
}

// The same for what may stay as it is: conversions make one NaN of all, these keep its bits.
template <class T>
__device__ __forceinline__ Accumulate<T> widen_bits(T value) {
  const Accumulate<T> wide = widen(value);
  if constexpr (same<T, __half>) {
    const uint32 bits = bit_cast<unsigned short>(value);
    if (wide != wide)
      return bit_cast<float>((bits & 0x8000u) << 16 | 0x7f800000u | (bits & 0x3ffu) << 13);
  }
  return wide;
}
template <class T>
__device__ __forceinline__ T narrow_bits(Accumulate<T> value) {
  if constexpr (is_half<T>) {
    const uint32 bits = bit_cast<uint32>(value);
    const uint32 of_half = (bits >> 16 & 0x8000u) | 0x7c00u | (bits >> 13 & 0x3ffu);
    if (value != value)
      return bit_cast<T>(static_cast<unsigned short>(same<T, __half> ? of_half : bits >> 16));
  }
  return narrow<T>(value);
}

// `count` elements that are loaded and stored as one access.
template <class T, int count>
struct alignas(sizeof(T) * count) Vector {
  T at[count];
};

template <class T, int count>
__device__ __forceinline__ Vector<T, count> load(const T* from) {
  return *reinterpret_cast<const Vector<T, count>*>(from);
}
// What loads with a cache hint take for 1, 2, 4, 8 and 16 bytes.
template <int bytes>
using ShortAccess = typename If<bytes == 1, unsigned char, unsigned short>::type;
template <int bytes>
using LongAccess = typename If<bytes == 16, uint4, typename If<bytes == 8, uint2, uint32>::type>::type;
template <int bytes>
using Access = typename If<bytes < 4, ShortAccess<bytes>, LongAccess<bytes>>::type;

// For what is read once: it gives way first in the caches.
template <class T, int count>
__device__ __forceinline__ Vector<T, count> load_once(const T* from) {
  constexpr int bytes = sizeof(T) * count;
  if constexpr (bytes >= 4 && bytes <= 16) {
    return bit_cast<Vector<T, count>>(__ldcs(reinterpret_cast<const Access<bytes>*>(from)));
  } else {
    return load<T, count>(from);
  }
}
template <class T, int count>
__device__ __forceinline__ void store(T* to, const Vector<T, count>& value) {
  *reinterpret_cast<Vector<T, count>*>(to) = value;
}
template <class T, int count>
__device__ __forceinline__ Vector<T, count> splat(T value) {
  Vector<T, count> result;
#pragma unroll
  for (int i = 0; i < count; ++i) result.at[i] = value;
  return result;
}

template <class T, int count>
__device__ __forceinline__ Vector<Accumulate<T>, count> widen(const Vector<T, count>& value) {
  Vector<Accumulate<T>, count> result;
  if constexpr (same<T, __nv_bfloat16> && count % 2 == 0) {
    // One instruction an element: taking the elements out one by one costs another.
    const auto words = bit_cast<Vector<uint32, count / 2>>(value);
#pragma unroll
    for (int i = 0; i < count / 2; ++i) {
      result.at[2 * i] = bit_cast<float>(words.at[i] << 16);
      result.at[2 * i + 1] = bit_cast<float>(words.at[i] & 0xffff0000u);
    }
  } else {
#pragma unroll
    for (int i = 0; i < count; ++i) result.at[i] = widen(value.at[i]);
  }
  return result;
}

// Two of them, as instructions take them.
template <class T>
using Pair = typename If<same<T, __half>, __half2, __nv_bfloat162>::type;

template <class T, int count>
__device__ __forceinline__ Vector<T, count> narrow(const Vector<Accumulate<T>, count>& value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (is_half<T> && count % 2 == 0) {
    Vector<Pair<T>, count / 2> pairs;
#pragma unroll
    for (int i = 0; i < count / 2; ++i) {
      if constexpr (same<T, __half>) {
        pairs.at[i] = __floats2half2_rn(value.at[2 * i], value.at[2 * i + 1]);
      } else {
        pairs.at[i] = __floats2bfloat162_rn(value.at[2 * i], value.at[2 * i + 1]);
      }
    }
    return bit_cast<Vector<T, count>>(pairs);
  }
#endif
  Vector<T, count> result;
#pragma unroll
  for (int i = 0; i < count; ++i) result.at[i] = narrow<T>(value.at[i]);
  return result;
}

template <class T, int count>
__device__ __forceinline__ bool has_nan(const Vector<T, count>& value) {
  bool found = false;
#pragma unroll
  for (int i = 0; i < count; ++i) found |= value.at[i] != value.at[i];
  return found;
}

// All elements at once, and one by one only where there is a NaN, whose bits are to stay.
template <class T, int count>
__device__ __forceinline__ Vector<Accumulate<T>, count> widen_bits(const Vector<T, count>& value) {
  auto result = widen(value);
  if constexpr (same<T, __half>) {
    if (has_nan(result)) {
#pragma unroll
      for (int i = 0; i < count; ++i) result.at[i] = widen_bits(value.at[i]);
    }
  }
  return result;
}
template <class T, int count>
__device__ __forceinline__ Vector<T, count> narrow_bits(
    const Vector<Accumulate<T>, count>& value) {
  auto result = narrow<T, count>(value);
  if constexpr (is_half<T>) {
    if (has_nan(value)) {
#pragma unroll
      for (int i = 0; i < count; ++i) result.at[i] = narrow_bits<T>(value.at[i]);
    }
  }
  return result;
}

// Whether vectors of `count` elements may be taken from a tensor; a view from outside may not be
// aligned to them.
template <class T, int count>
__device__ __forceinline__ bool aligned(const T* tensor) {
  return count == 1 || reinterpret_cast<size_t>(tensor) % (sizeof(T) * count) == 0;
}

template <class T>
__device__ __forceinline__ T ceil_div(T numerator, T denominator) {
  return (numerator + denominator - 1) / denominator;
}

}  // namespace tvm_scatter
#endif
