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

// A NaN on either side is kept, as PyTorch and NumPy do.
struct Min {
  template <class T>
  static __device__ __forceinline__ bool keeps(T old, T update) {
    if constexpr (same<T, Boolean>) {
      return old.value <= update.value;
    } else if constexpr (is_half<T>) {
      return keeps(widen(old), widen(update));
    } else {
      return old <= update || old != old;
    }
  }
  template <class T>
  static __device__ __forceinline__ T combine(T old, T update) {
    return keeps(old, update) ? old : update;
  }
};

struct Max {
  template <class T>
  static __device__ __forceinline__ bool keeps(T old, T update) {
    if constexpr (same<T, Boolean>) {
      return old.value >= update.value;
    } else if constexpr (is_half<T>) {
      return keeps(widen(old), widen(update));
    } else {
      return old >= update || old != old;
    }
  }
  template <class T>
  static __device__ __forceinline__ T combine(T old, T update) {
    return keeps(old, update) ? old : update;
  }
};

// Combine two stored values, 16-bit floats through 32 bits.
template <class R, class T>
__device__ __forceinline__ T combine_stored(T old, T update) {
  return narrow<T>(R::combine(widen(old), widen(update)));
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
