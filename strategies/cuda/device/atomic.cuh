// Combining into memory that other threads combine into at the same time.
#ifndef TVM_SCATTER_ATOMIC
#define TVM_SCATTER_ATOMIC
#include "reduction.cuh"

namespace tvm_scatter {

// Compare-and-swap loop: any reduction on any type. A type of one byte swaps the aligned word
// around it; its neighbours are written back as they were read.
template <class R, class T>
__device__ __forceinline__ void atomic_by_swap(T* at, T update) {
  if constexpr (sizeof(T) == 1) {
    const size_t address = reinterpret_cast<size_t>(at);
    uint32* word = reinterpret_cast<uint32*>(address & ~static_cast<size_t>(3));
    const uint32 shift = 8 * static_cast<uint32>(address & 3);
    uint32 seen = *reinterpret_cast<volatile uint32*>(word);
    while (true) {
      const T old = bit_cast<T>(static_cast<unsigned char>(seen >> shift));
      const uint32 byte = bit_cast<unsigned char>(combine_stored<R>(old, update));
      const uint32 next = (seen & ~(0xffu << shift)) | (byte << shift);
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

// Minimum and maximum of floats by integer atomics: as integers, positive floats are ordered as
// they are, and negative ones in reverse. So -0 comes before +0, and the NaN written is at the end of
// that order. A NaN that stands there already is kept by the look first, which also spares most of
// the traffic to a contended destination.
template <class R, class T>
__device__ __forceinline__ void atomic_extreme_of_float(T* at, T update) {
  using Signed = SignedBits<T>;
  using Unsigned = Bits<T>;
  const T seen = *const_cast<volatile T*>(at);
  if (bit_cast<Unsigned>(combine_stored<R>(seen, update)) == bit_cast<Unsigned>(seen)) return;
  const Signed bits = bit_cast<Signed>(one_nan<R>(update));
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
  } else if constexpr (is_float_extreme<R, T> && !is_half<T>) {
    atomic_extreme_of_float<R>(at, update);
  } else if constexpr (same<R, Min> && !is_float<T> && sizeof(T) >= 4) {
    if (*const_cast<volatile T*>(at) > update) atomicMin(at, update);
  } else if constexpr (same<R, Max> && !is_float<T> && sizeof(T) >= 4) {
    if (*const_cast<volatile T*>(at) < update) atomicMax(at, update);
  } else {
    atomic_by_swap<R>(at, update);
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
  } else {
#pragma unroll
    for (int i = 0; i < count; ++i) atomic_combine<R>(at + i, update.at[i]);
  }
}

}  // namespace tvm_scatter
#endif
