// What the threads of a warp do together with tensor cores, as `ldmatrix` and `mma` of NVIDIA's PTX ISA
// describe it. Where there is no PTX, lanes ask each other for what these instructions exchange.
#ifndef TVM_SCATTER_FRAGMENTS
#define TVM_SCATTER_FRAGMENTS
#include "common.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && !defined(TVM_SCATTER_NO_PTX)
#define TVM_SCATTER_HAS_FRAGMENTS 1
#else
#define TVM_SCATTER_HAS_FRAGMENTS 0
#endif

namespace tvm_scatter {

// The four matrices of 8 x 8 that make up a tile of 16 x 16 in shared memory. `below` says that the
// second one lies below the first, and not beside it; `transposed` that each of them is transposed.
template <bool below, bool transposed>
__device__ __forceinline__ void load_matrices(uint32 (&pairs)[4], const void* tile, int stride) {
  const int lane = threadIdx.x % kWarp;
  const int row = below ? lane % 16 : lane % 8 + lane / 16 * 8;
  const int column = 8 * (below ? lane / 16 : lane / 8 % 2);
  const unsigned short* mine = static_cast<const unsigned short*>(tile) + row * stride + column;
#if TVM_SCATTER_HAS_FRAGMENTS
  const uint32 address = static_cast<uint32>(__cvta_generic_to_shared(mine));
  if constexpr (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
                 : "r"(address)
                 : "memory");
  }
#else
  for (int matrix = 0; matrix < 4; ++matrix) {
    uint32 pair = 0;
    for (int half = 0; half < 2; ++half) {
      const int from = 8 * matrix + (transposed ? lane % 4 * 2 + half : lane / 4);
      const int at = transposed ? lane / 4 : lane % 4 * 2 + half;
      const uint64 found = __shfl_sync(kAllLanes, reinterpret_cast<uint64>(mine), from);
      pair |= static_cast<uint32>(reinterpret_cast<const unsigned short*>(found)[at]) << (16 * half);
    }
    pairs[matrix] = pair;
  }
#endif
}

// Adds the product of 16 rows of 16 terms with 8 columns of 16 terms to sums in single precision.
template <class Data>
__device__ __forceinline__ void multiply_matrices(float (&sums)[4], const uint32 (&rows)[4],
                                                  uint32 first, uint32 second) {
#if TVM_SCATTER_HAS_FRAGMENTS
  if constexpr (same<Data, __half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "r"(first), "r"(second));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "r"(first), "r"(second));
  }
#else
  const int lane = threadIdx.x % kWarp;
  for (int pair = 0; pair < 8; ++pair) {
    const int part = pair / 4, beside = pair % 4;
    uint32 row[2], column[2];
    for (int line = 0; line < 2; ++line) {
      row[line] = __shfl_sync(kAllLanes, rows[2 * part + line], lane / 4 * 4 + beside);
      column[line] =
          __shfl_sync(kAllLanes, part ? second : first, (lane % 4 * 2 + line) * 4 + beside);
    }
    for (int at = 0; at < 4; ++at) {
      const auto left = bit_cast<Vector<Data, 2>>(row[at / 2]);
      const auto right = bit_cast<Vector<Data, 2>>(column[at % 2]);
      for (int half = 0; half < 2; ++half) {
        sums[at] += widen(left.at[half]) * widen(right.at[half]);
      }
    }
  }
#endif
}

// Copies sixteen bytes to shared memory, or zeros in their place. They are there behind
// `wait_for_copies`.
__device__ __forceinline__ void copy_later(void* to, const void* from, bool is_there) {
#if TVM_SCATTER_HAS_FRAGMENTS
  const uint32 address = static_cast<uint32>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
               "r"(is_there ? 16 : 0)
               : "memory");
#else
  *static_cast<uint4*>(to) = is_there ? *static_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
#endif
}

// All threads of the block have what they copied, and are done with what they read before.
__device__ __forceinline__ void wait_for_copies() {
#if TVM_SCATTER_HAS_FRAGMENTS
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
  __syncthreads();
}

}  // namespace tvm_scatter
#endif
