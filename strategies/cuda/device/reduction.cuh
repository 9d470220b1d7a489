// The reductions: how two values combine, and how one is combined into memory without a race.
#ifndef TVM_SCATTER_REDUCTION
#define TVM_SCATTER_REDUCTION
#include "common.cuh"

namespace tvm_scatter {

// Unsigned arithmetic, because signed overflow is undefined and integers here wrap around.
template <class T>
using Wrapping = typename If<sizeof(T) == 8, uint64, uint32>::type;

struct Update {
  template <class T>
  static __device__ __forceinline__ T combine(T, T update) {
    return update;
  }
};

struct Add {
  template <class T>
  static __device__ __forceinline__ T combine(T old, T update) {
    if constexpr (same<T, Boolean>) {
      return Boolean{static_cast<unsigned char>(old.value | update.value)};
    } else if constexpr (is_float<T>) {
      return old + update;
    } else {
      return static_cast<T>(static_cast<Wrapping<T>>(old) + static_cast<Wrapping<T>>(update));
    }
  }
};

struct Mul {
  template <class T>
  static __device__ __forceinline__ T combine(T old, T update) {
    if constexpr (same<T, Boolean>) {
      return Boolean{static_cast<unsigned char>(old.value & update.value)};
    } else if constexpr (is_float<T>) {
      return old * update;
    } else {
      return static_cast<T>(static_cast<Wrapping<T>>(old) * static_cast<Wrapping<T>>(update));
    }
  }
};

// Minimum and maximum of floats are those of IEEE 754's total order, in which -0 comes before +0; a
// NaN wins over every number. So they do not depend on the order of the updates.

// A value as one that is ordered so: floats as integers, because under fast math a comparison of
// floats takes denormals for zeros.
template <class T>
__device__ __forceinline__ auto ordered(T value) {
  if constexpr (same<T, Boolean>) {
    return value.value;
  } else if constexpr (is_float<T>) {
    const auto bits = bit_cast<SignedBits<T>>(value);
    constexpr auto magnitude = static_cast<SignedBits<T>>(static_cast<Bits<T>>(~Bits<T>(0)) >> 1);
    const auto sign = static_cast<SignedBits<T>>(bits >> (8 * sizeof(T) - 1));
    return static_cast<SignedBits<T>>(bits ^ (sign & magnitude));
  } else {
    return value;
  }
}

template <class T>
__device__ __forceinline__ bool is_nan(T value) {
  if constexpr (is_half<T>) {
    constexpr int infinity = same<T, __half> ? 0x7c00 : 0x7f80;
    return (bit_cast<Bits<T>>(value) & 0x7fff) > infinity;
  } else if constexpr (same<T, double>) {
    // As an integer, like what it is compared with: as both it would take twice the registers.
    return (bit_cast<uint64>(value) & 0x7fffffffffffffffull) > 0x7ff0000000000000ull;
  } else if constexpr (is_float<T>) {
    return value != value;
  } else {
    return false;
  }
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && !defined(TVM_SCATTER_NO_PTX)
#define TVM_SCATTER_EXTREME_OF(T_, OP, TYPE, REGISTER)                             \
  if constexpr (same<T, T_>) {                                                     \
    Bits<T> result;                                                                \
    asm(OP ".NaN." TYPE " %0, %1, %2;"                                             \
        : "=" REGISTER(result)                                                     \
        : REGISTER(bit_cast<Bits<T>>(old)), REGISTER(bit_cast<Bits<T>>(update)));  \
    return bit_cast<T>(result);                                                    \
  }
#define TVM_SCATTER_EXTREME(OP)                              \
  TVM_SCATTER_EXTREME_OF(float, OP, "f32", "r")              \
  TVM_SCATTER_EXTREME_OF(__half, OP, "f16", "h")             \
  TVM_SCATTER_EXTREME_OF(__nv_bfloat16, OP, "bf16", "h")
#else
#define TVM_SCATTER_EXTREME(OP)
#endif

struct Min {
  template <class T>
  static __device__ __forceinline__ T combine(T old, T update) {
    TVM_SCATTER_EXTREME("min")
    if (is_nan(old)) return old;
    return !is_nan(update) && ordered(old) <= ordered(update) ? old : update;
  }
};

struct Max {
  template <class T>
  static __device__ __forceinline__ T combine(T old, T update) {
    TVM_SCATTER_EXTREME("max")
    if (is_nan(old)) return old;
    return !is_nan(update) && ordered(old) >= ordered(update) ? old : update;
  }
};
#undef TVM_SCATTER_EXTREME
#undef TVM_SCATTER_EXTREME_OF

template <class R>
constexpr bool is_extreme = same<R, Min> || same<R, Max>;
template <class R, class T>
constexpr bool is_float_extreme = is_float<T> && is_extreme<R>;

// Every NaN becomes the one at the end of the total order.
template <class R, class T>
__device__ __forceinline__ T one_nan(T value) {
  constexpr auto last = static_cast<Bits<T>>(~Bits<T>(0));
  if (!is_nan(value)) return value;
  return bit_cast<T>(same<R, Min> ? last : static_cast<Bits<T>>(last >> 1));
}

// Whether an update changes what stands at its place; it is no NaN but that one. There is no branch.
template <class R, class T>
__device__ __forceinline__ bool replaces(T update, T old) {
  const bool before = same<R, Min> ? ordered(update) < ordered(old) : ordered(update) > ordered(old);
  return before & !is_nan(old);
}

// A value as it was accumulated becomes one as it is stored.
template <class R, class T>
__device__ __forceinline__ T stored(Accumulate<T> value) {
  if constexpr (is_float_extreme<R, T>) {
    return one_nan<R>(narrow<T>(value));
  } else {
    return narrow<T>(value);
  }
}

// Combine two stored values, 16-bit floats through 32 bits. A NaN that stands there already is kept as
// it is by minimum and maximum.
template <class R, class T>
__device__ __forceinline__ T combine_stored(T old, T update) {
  if constexpr (is_float_extreme<R, T>) {
    return is_nan(old) ? old : one_nan<R>(R::combine(old, update));
  } else {
    return narrow<T>(R::combine(widen(old), widen(update)));
  }
}

// Combine a stored value and an accumulated one.
template <class R, class T>
__device__ __forceinline__ T combine_into(T old, Accumulate<T> value) {
  if constexpr (is_float_extreme<R, T>) {
    return combine_stored<R>(old, narrow<T>(value));
  } else {
    return narrow<T>(R::combine(widen(old), value));
  }
}

// The values of all lanes of a warp combined, in the first lane.
template <class R, class T>
__device__ __forceinline__ T combine_lanes(T value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    // Shuffles take no type of one byte.
    using Word = typename If<sizeof(T) == 8, uint64, uint32>::type;
    const Word other =
        __shfl_down_sync(kAllLanes, static_cast<Word>(bit_cast<Bits<T>>(value)), distance);
    value = R::combine(value, bit_cast<T>(static_cast<Bits<T>>(other)));
  }
  return value;
}

}  // namespace tvm_scatter
#endif
