"""What threads of a warp do together with tensor cores, as calls of CUDA C++.

A fragment is what a thread has of a matrix of 16 x 16 elements, as ``ldmatrix`` and ``mma`` of
NVIDIA's PTX ISA (sections 9.7.14.5.8 and 9.7.14.5.15) hand it out. Where there is no PTX, lanes
ask each other for what these instructions exchange.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

_LOAD = """
// The elements of a fragment lie in four matrices of 8 x 8, whose rows the lanes name in turn.
__forceinline__ __device__ void tvm_scatter_load_fragment(
    void* fragment, const void* tile, int stride, int across, int transposed) {
  int lane = threadIdx.x;
  int row = across ? lane % 8 + lane / 16 * 8 : lane % 16;
  int column = 8 * (across ? lane / 8 % 2 : lane / 16);
  const unsigned short* begin = static_cast<const unsigned short*>(tile) + row * stride + column;
  unsigned* pairs = static_cast<unsigned*>(fragment);
#ifdef __CUDA_ARCH__
  unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(begin));
  if (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
                 : "r"(address) : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
                 : "r"(address) : "memory");
  }
#else
  for (int matrix = 0; matrix < 4; ++matrix) {
    unsigned pair = 0;
    for (int half = 0; half < 2; ++half) {
      int from = 8 * matrix + (transposed ? lane % 4 * 2 + half : lane / 4);
      int at = transposed ? lane / 4 : lane % 4 * 2 + half;
      auto found = __shfl_sync(~0u, reinterpret_cast<unsigned long long>(begin), from);
      pair |= unsigned(reinterpret_cast<const unsigned short*>(found)[at]) << (16 * half);
    }
    pairs[matrix] = pair;
  }
#endif
}
"""
_MULTIPLY = """
#ifdef __CUDA_ARCH__
#define TVM_SCATTER_MULTIPLY(TYPE, PART)                                                   \\
  asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 "                       \\
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                    \\
      : "+f"(sums[4 * PART]), "+f"(sums[4 * PART + 1]), "+f"(sums[4 * PART + 2]),          \\
        "+f"(sums[4 * PART + 3])                                                           \\
      : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "r"(columns[2 * PART]),    \\
        "r"(columns[2 * PART + 1]))
#else
template <class Number>
__forceinline__ __device__ float tvm_scatter_half_of(unsigned pair, int half) {
  unsigned short bits = pair >> (16 * half);
  return static_cast<float>(reinterpret_cast<const Number&>(bits));
}
template <class Number>
__forceinline__ __device__ void tvm_scatter_multiply_lanes(
    float* sums, const unsigned* rows, const unsigned* columns) {
  int lane = threadIdx.x;
  for (int pair = 0; pair < 8; ++pair) {
    int part = pair / 4, beside = pair % 4;
    for (int line = 0; line < 2; ++line) {
      unsigned row = __shfl_sync(~0u, rows[2 * part + line], lane / 4 * 4 + beside);
      for (int at = 0; at < 4; ++at) {
        unsigned column =
            __shfl_sync(~0u, columns[at / 2 * 2 + part], (lane % 4 * 2 + at % 2) * 4 + beside);
        for (int half = 0; half < 2; ++half) {
          sums[at / 2 * 4 + 2 * line + at % 2] +=
              tvm_scatter_half_of<Number>(row, half) * tvm_scatter_half_of<Number>(column, half);
        }
      }
    }
  }
}
#endif
__forceinline__ __device__ void tvm_scatter_multiply_fragments(
    float* sums, const void* left, const void* right, int is_bfloat16) {
  const unsigned* rows = static_cast<const unsigned*>(left);
  const unsigned* columns = static_cast<const unsigned*>(right);
#ifdef __CUDA_ARCH__
  if (is_bfloat16) {
    TVM_SCATTER_MULTIPLY("bf16", 0);
    TVM_SCATTER_MULTIPLY("bf16", 1);
  } else {
    TVM_SCATTER_MULTIPLY("f16", 0);
    TVM_SCATTER_MULTIPLY("f16", 1);
  }
#else
  if (is_bfloat16) {
    tvm_scatter_multiply_lanes<__nv_bfloat16>(sums, rows, columns);
  } else {
    tvm_scatter_multiply_lanes<__half>(sums, rows, columns);
  }
#endif
}
"""
_CLEAR = """
__forceinline__ __device__ void tvm_scatter_clear_fragments(float* sums, int count) {
#pragma unroll
  for (int at = 0; at < 8 * count; ++at) sums[at / 8 * 16 + at % 8] = 0.0f;
}
"""
_STORE = """
__forceinline__ __device__ void tvm_scatter_store_fragment(
    float* tile, const float* sums, int stride) {
  int lane = threadIdx.x;
  for (int part = 0; part < 4; ++part) {
    float* to = tile + (lane / 4 + part % 2 * 8) * stride + part / 2 * 8 + lane % 4 * 2;
    *reinterpret_cast<float2*>(to) = make_float2(sums[2 * part], sums[2 * part + 1]);
  }
  __syncwarp();
}
"""
_COPY = """
// Sixteen bytes, or zeros in their place, that are on their way when this returns.
__forceinline__ __device__ void tvm_scatter_copy_later(void* to, const void* from, int is_there) {
#ifdef __CUDA_ARCH__
  unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               ::"r"(address), "l"(from), "r"(is_there ? 16 : 0) : "memory");
#else
  *static_cast<uint4*>(to) =
      is_there ? *static_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
#endif
}
"""
_COPIED = """
__forceinline__ __device__ void tvm_scatter_end_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
"""
_WAIT = """
// Until the copies for a step are there, of as many steps as are left; up to two later ones go on.
__forceinline__ __device__ void tvm_scatter_wait_for_copies(
    int left, int later, int by_group) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if (by_group) asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
#ifdef __CUDA_ARCH__
  if (left <= later || later == 0) {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
  } else if (later == 1) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
  } else {
    asm volatile("cp.async.wait_group 2;" ::: "memory");
  }
#endif
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if (by_group) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
  __syncthreads();
}
"""


def load(fragment: Any, tile: Any, stride: Any, across: bool, transposed: bool) -> Any:
    """A fragment from a tile in shared memory.

    Parameters
    ----------
    stride : expression
        Elements from a row of the tile to the next.
    across : bool
        Whether its second matrix of 8 x 8 lies beside the first, and not below it.
    transposed : bool
        Whether its elements are those of the transposed tile.
    """
    flags = (tirx.IntImm("int32", int(flag)) for flag in (across, transposed))
    return call("tvm_scatter_load_fragment", _LOAD, fragment, tile, stride, *flags)


def multiply(sums: Any, left: Any, right: Any, dtype: str) -> Any:
    """The product of two fragments, added to a third one in single precision."""
    flag = tirx.IntImm("int32", int(dtype == "bfloat16"))
    return call("tvm_scatter_multiply_fragments", _MULTIPLY, sums, left, right, flag)


def clear(sums: Any, count: int) -> Any:
    """So many fragments of zeros, beside each other."""
    return call("tvm_scatter_clear_fragments", _CLEAR, sums, tirx.IntImm("int32", count))


def store(tile: Any, sums: Any, stride: Any) -> Any:
    """A fragment into shared memory, where the warp may read it."""
    return call("tvm_scatter_store_fragment", _STORE, tile, sums, stride)


def copy_later(to: Any, origin: Any, is_there: Any) -> Any:
    """A copy of 16 bytes to shared memory that is waited for later."""
    return call("tvm_scatter_copy_later", _COPY, to, origin, tirx.Cast("int32", is_there))


def end_copies() -> Any:
    """What is copied later up to here is waited for together."""
    return call("tvm_scatter_end_copies", _COPIED)


def wait_for_copies(left: Any, later: int, by_group: bool) -> Any:
    """All threads have what was copied for a step; copies of so many later steps may go on.

    If tensor cores read shared memory by themselves (``by_group``), they are done with the step
    before.
    """
    flags = (tirx.IntImm("int32", int(each)) for each in (later, by_group))
    return call("tvm_scatter_wait_for_copies", _WAIT, tirx.Cast("int32", left), *flags)


def call(name: str, source: str, *arguments: Any) -> Any:
    """A call of a function whose source comes with it."""
    return T.cuda.func_call(name, *arguments, source_code=source, return_type="void")
