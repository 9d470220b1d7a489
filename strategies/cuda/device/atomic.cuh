// Combining into memory that other threads combine into at the same time.
#ifndef TVM_SCATTER_ATOMIC
#define TVM_SCATTER_ATOMIC
#include "reduction.cuh"

namespace tvm_scatter {

// Compare-and-swap loop: any reduction on any type. What is smaller than a word swaps the aligned word
// around it; its neighbours are written back as they were read.
template <class R, class T>
__device__ __forceinline__ void atomic_by_swap(T* at, T update) {
  if constexpr (sizeof(T) < 4) {
    constexpr uint32 mask = (1u << 8 * sizeof(T)) - 1;
    const size_t address = reinterpret_cast<size_t>(at);
    uint32* word = reinterpret_cast<uint32*>(address & ~static_cast<size_t>(3));
    const uint32 shift = 8 * static_cast<uint32>(address & 3);
    uint32 seen = *reinterpret_cast<volatile uint32*>(word);
    while (true) {
      const T old = bit_cast<T>(static_cast<Bits<T>>(seen >> shift));
      const uint32 bits = bit_cast<Bits<T>>(combine_stored<R>(old, update));
      const uint32 next = (seen & ~(mask << shift)) | (bits << shift);
      if (next == seen) return;
      const uint32 found = atomicCAS(word, seen, next);
      if (found == seen) return;
      seen = found;
    }
  } else {
    using Word = Bits<T>;
    Word* word = reinterpret_cast<Word*>(at);
    Word seen = *reinterpret_cast<volatile Word*>(word);
    while (true) {
      const Word next = bit_cast<Word>(combine_stored<R>(bit_cast<T>(seen), update));
      // A NaN that combines to itself ends here too, since bits are compared.
      if (next == seen) return;
      const Word found = atomicCAS(word, seen, next);
      if (found == seen) return;
      seen = found;
    }
  }
}

// What stands in global memory that others write to, with as few accesses as possible.
template <class T, int count>
__device__ __forceinline__ Vector<T, count> look(const T* at) {
  constexpr int bytes = sizeof(T) * count;
  if constexpr (bytes <= 16) {
    return bit_cast<Vector<T, count>>(__ldcv(reinterpret_cast<const Access<bytes>*>(at)));
  } else {
    constexpr int half = count / 2;
    const auto low = look<T, half>(at), high = look<T, half>(at + half);
    Vector<T, count> seen;
#pragma unroll
    for (int i = 0; i < half; ++i) seen.at[i] = low.at[i], seen.at[half + i] = high.at[i];
    return seen;
  }
}

// Minimum and maximum by integer atomics, after a look. As integers, positive floats are ordered as
// they are, and negative ones in reverse. So -0 comes before +0, and the NaN written is at the end of
// that order. A NaN that stands there already is kept by the look.
template <class R, class T>
__device__ __forceinline__ void atomic_extreme(T* at, T update, T seen) {
  const T value = one_nan<R>(update);
  if (!replaces<R>(value, seen)) return;
  if constexpr (is_float<T>) {
    using Signed = SignedBits<T>;
    using Unsigned = Bits<T>;
    const Signed bits = bit_cast<Signed>(value);
    if constexpr (same<R, Max>) {
      if (bits >= 0) {
        atomicMax(reinterpret_cast<Signed*>(at), bits);
      } else {
        atomicMin(reinterpret_cast<Unsigned*>(at), static_cast<Unsigned>(bits));
      }
    } else {
      if (bits >= 0) {
        atomicMin(reinterpret_cast<Signed*>(at), bits);
      } else {
        atomicMax(reinterpret_cast<Unsigned*>(at), static_cast<Unsigned>(bits));
      }
    }
  } else if constexpr (same<R, Min>) {
    atomicMin(at, value);
  } else {
    atomicMax(at, value);
  }
}

template <class R, class T>
__device__ __forceinline__ void atomic_combine(T* at, T update) {
  if constexpr (same<R, Update>) {
    *at = update;
  } else if constexpr (same<T, Boolean>) {
    // Disjunction can only set, conjunction only clear: a plain store of the same value by many.
    if constexpr (same<R, Add> || same<R, Max>) {
      if (update.value) at->value = 1;
    } else {
      if (!update.value) at->value = 0;
    }
  } else if constexpr (same<R, Add> && (is_float<T> || same<T, int> || same<T, uint32>)) {
    atomicAdd(at, update);
  } else if constexpr (same<R, Add> && sizeof(T) == 8) {
    atomicAdd(reinterpret_cast<uint64*>(at), static_cast<uint64>(update));
  } else if constexpr (is_extreme<R> && sizeof(T) >= 4) {
    atomic_extreme<R>(at, update, static_cast<T>(*const_cast<volatile T*>(at)));
  } else {
    atomic_by_swap<R>(at, update);
  }
}

// The sum as the hardware's atomics in shared memory have it: denormal floats are not zero, whatever the
// compiler's options say.
template <class T>
__device__ __forceinline__ T whole_sum(T left, T right) {
#if defined(__CUDA_ARCH__) && !defined(TVM_SCATTER_NO_PTX)
  if constexpr (same<T, float>) {
    float sum;
    asm("add.rn.f32 %0, %1, %2;" : "=f"(sum) : "f"(left), "f"(right));
    return sum;
  }
#endif
  return combine_stored<Add>(left, right);
}

// Combine into shared memory. The hardware's sum of floats there is a loop that adds the values of one
// lane of each bank at a time: 3.5 times for 32 places at random. A look and a swap take all lanes at
// once, and only what meets another update goes through that loop.
template <class R, class T>
__device__ __forceinline__ void shared_combine(T* at, T update) {
  if constexpr (same<R, Add> && (is_float<T> || sizeof(T) == 8) && sizeof(T) >= 4) {
    using Word = Bits<T>;
    Word* const word = reinterpret_cast<Word*>(at);
    const Word seen = *reinterpret_cast<volatile Word*>(word);
    if (atomicCAS(word, seen, bit_cast<Word>(whole_sum(bit_cast<T>(seen), update))) == seen) return;
  }
  atomic_combine<R, T>(at, update);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && !defined(TVM_SCATTER_NO_PTX)
#define TVM_SCATTER_EXTREME_OF_PAIR(OP, TYPE)                                                   \
  if constexpr (same<T, TYPE>) {                                                                \
    constexpr uint32 beyond_infinity = same<T, __half> ? 0x03ff03ffu : 0x007f007fu;             \
    uint32 result;                                                                              \
    asm(OP " %0, %1, %2;" : "=r"(result) : "r"(seen), "r"(update));                             \
    if ((((result & 0x7fff7fffu) + beyond_infinity) & 0x80008000u) == 0) return result;         \
  }
#else
#define TVM_SCATTER_EXTREME_OF_PAIR(OP, TYPE)
#endif

// Minimum or maximum of the two 16-bit floats of a word. The instruction does not tell one NaN from
// another.
template <class R, class T>
__device__ __forceinline__ uint32 extreme_of_pair(uint32 seen, uint32 update) {
  if constexpr (same<R, Min>) {
    TVM_SCATTER_EXTREME_OF_PAIR("min.NaN.f16x2", __half)
    TVM_SCATTER_EXTREME_OF_PAIR("min.NaN.bf16x2", __nv_bfloat16)
  } else {
    TVM_SCATTER_EXTREME_OF_PAIR("max.NaN.f16x2", __half)
    TVM_SCATTER_EXTREME_OF_PAIR("max.NaN.bf16x2", __nv_bfloat16)
  }
  const auto old = bit_cast<Vector<T, 2>>(seen);
  const auto value = bit_cast<Vector<T, 2>>(update);
  Vector<T, 2> result;
#pragma unroll
  for (int i = 0; i < 2; ++i) result.at[i] = combine_stored<R>(old.at[i], value.at[i]);
  return bit_cast<uint32>(result);
}
#undef TVM_SCATTER_EXTREME_OF_PAIR

// Pairs of 16-bit floats: all compare-and-swaps of a round are in flight together.
template <class R, class T, int count>
__device__ __forceinline__ void atomic_extreme_of_pairs(uint32* at,
                                                        const Vector<uint32, count>& update,
                                                        Vector<uint32, count> seen) {
  bool again;
  do {
    Vector<uint32, count> next, found = seen;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      next.at[i] = extreme_of_pair<R, T>(seen.at[i], update.at[i]);
      if (next.at[i] != seen.at[i]) found.at[i] = atomicCAS(at + i, seen.at[i], next.at[i]);
    }
    again = false;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const bool failed = found.at[i] != seen.at[i];
      again |= failed;
      seen.at[i] = failed ? found.at[i] : next.at[i];
    }
  } while (again);
}

// Whether a minimum or maximum of so many adjacent elements is made after one look at all of them.
template <class R, class T, int count>
constexpr bool looks_once = is_extreme<R> && count * sizeof(T) <= 16 &&
                            (sizeof(T) >= 4 || (is_half<T> && count % 2 == 0));

template <class R, class T, int count>
__device__ __forceinline__ void atomic_extremes(T* at, const Vector<T, count>& update) {
  const Vector<T, count> seen = look<T, count>(at);
  if constexpr (is_half<T>) {
    using Pairs = Vector<uint32, count / 2>;
    atomic_extreme_of_pairs<R, T>(reinterpret_cast<uint32*>(at), bit_cast<Pairs>(update),
                                  bit_cast<Pairs>(seen));
  } else {
#pragma unroll
    for (int i = 0; i < count; ++i) atomic_extreme<R>(at + i, update.at[i], seen.at[i]);
  }
}

// Several adjacent elements at once; `at` is aligned to all of them.
template <class R, class T, int count>
__device__ __forceinline__ void atomic_combine_vector(T* at, const Vector<T, count>& update) {
  if constexpr (same<R, Update>) {
    store<T, count>(at, update);
    return;
  }
  constexpr int widest = 16 / sizeof(T);
  if constexpr (count > widest) {
#pragma unroll
    for (int i = 0; i < count; i += widest) {
      Vector<T, widest> part;
#pragma unroll
      for (int j = 0; j < widest; ++j) part.at[j] = update.at[i + j];
      atomic_combine_vector<R, T, widest>(at + i, part);
    }
    return;
  }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && !defined(TVM_SCATTER_NO_PTX)
  if constexpr (same<R, Add> && same<T, float> && count == 4) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(
                     __cvta_generic_to_global(at)),
                 "f"(update.at[0]), "f"(update.at[1]), "f"(update.at[2]), "f"(update.at[3])
                 : "memory");
    return;
  }
  if constexpr (same<R, Add> && same<T, float> && count == 2) {
    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(
                     __cvta_generic_to_global(at)),
                 "f"(update.at[0]), "f"(update.at[1])
                 : "memory");
    return;
  }
#define TVM_SCATTER_RED_8(OP, TYPE)                                                              \
  {                                                                                              \
    const auto words = bit_cast<Vector<uint32, 4>>(update);                                      \
    asm volatile("red.relaxed.gpu.global." OP ".noftz.v4." TYPE " [%0], {%1, %2, %3, %4};" ::"l"( \
                     __cvta_generic_to_global(at)),                                              \
                 "r"(words.at[0]), "r"(words.at[1]), "r"(words.at[2]), "r"(words.at[3])          \
                 : "memory");                                                                    \
    return;                                                                                      \
  }
  if constexpr (same<T, __half> && count == 8) {
    if constexpr (same<R, Add>) TVM_SCATTER_RED_8("add", "f16x2")
  }
  if constexpr (same<T, __nv_bfloat16> && count == 8) {
    if constexpr (same<R, Add>) TVM_SCATTER_RED_8("add", "bf16x2")
  }
#undef TVM_SCATTER_RED_8
#endif
  if constexpr (same<R, Add> && same<T, __half> && count % 2 == 0) {
#pragma unroll
    for (int i = 0; i < count; i += 2)
      atomicAdd(reinterpret_cast<__half2*>(at + i), __halves2half2(update.at[i], update.at[i + 1]));
  } else if constexpr (same<R, Add> && same<T, __nv_bfloat16> && count % 2 == 0) {
#pragma unroll
    for (int i = 0; i < count; i += 2)
      atomicAdd(reinterpret_cast<__nv_bfloat162*>(at + i),
                __halves2bfloat162(update.at[i], update.at[i + 1]));
  } else if constexpr (looks_once<R, T, count>) {
    atomic_extremes<R, T, count>(at, update);
  } else {
#pragma unroll
    for (int i = 0; i < count; ++i) atomic_combine<R>(at + i, update.at[i]);
  }
}

}  // namespace tvm_scatter
#endif
