"""What four warps do together with tensor cores (``wgmma``), as calls of CUDA C++.

They read both factors from shared memory, once for 64 rows, by descriptors of NVIDIA's PTX ISA
(section 9.7.15): rows of 128 bytes there, eight of which have their parts of 16 bytes changed by
the number of the row, so that no banks conflict. Where these instructions are missing, each lane
computes what they would have given it.
"""

from __future__ import annotations

from typing import Any

from .tensor_core_code import call

#: Elements of 16 bits in a row of shared memory, and in a part of it.
ROW, PART = 64, 8

#: What products of all sizes need comes with each of them, and stands once.
_PARTS = """
#ifndef TVM_SCATTER_WARPGROUPS
#define TVM_SCATTER_WARPGROUPS
template <class Number>
__forceinline__ __device__ float tvm_scatter_element(
    const unsigned short* rows, int stride, int line, int term, int by_term) {
  int row = by_term ? term : line, column = by_term ? line % 64 : term;
  if (by_term) rows += line / 64 * stride;
  unsigned short bits = rows[row * 64 + (column ^ row % 8 * 8)];
  return static_cast<float>(reinterpret_cast<const Number&>(bits));
}
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// A factor in shared memory: rows of 128 bytes, eight of them together, and the distance of the
// next 64 lines, if its rows are terms.
__forceinline__ __device__ unsigned long long tvm_scatter_describe(const void* rows, int stride) {
  unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(rows));
  return (1ull << 62) | (64ull << 32) | ((unsigned long long)(stride / 8) << 16) |
         (address >> 4 & 0x3fff);
}
#endif
#endif
"""
_BEGIN = """
__forceinline__ __device__ void tvm_scatter_begin_products() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
"""
_END = """
__forceinline__ __device__ void tvm_scatter_end_products() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
"""
_WAIT = """
__forceinline__ __device__ void tvm_scatter_wait_for_products() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
}
"""


def begin_products() -> Any:
    """What the threads have in registers may be added to from here on."""
    return call("tvm_scatter_begin_products", _BEGIN)


def end_products() -> Any:
    """The products up to here are waited for together."""
    return call("tvm_scatter_end_products", _END)


def wait_for_products() -> Any:
    """The sums are there."""
    return call("tvm_scatter_wait_for_products", _WAIT)


def multiply(
    sums: Any,
    left: Any,
    right: Any,
    begins: tuple[Any, Any],
    stride: Any,
    columns: int,
    dtype: str,
    by_term: tuple[bool, bool],
) -> Any:
    """The product of 64 rows and some columns, of which each warp has 16 rows.

    Parameters
    ----------
    sums, left, right : expression
        Addresses: of a thread's sums, of the warp's first element of the left factor, and of the
        first one of the right factor.
    begins : tuple of expression
        The places of these two in their rows of shared memory.
    stride : expression
        The elements from 64 columns of the right factor to the next, if its rows are terms.
    columns : int
        The columns, a multiple of 16.
    dtype : str
        The type of the factors.
    by_term : tuple of bool
        For both factors, whether their rows in shared memory are terms.
    """
    flags = "_".join(str(int(flag)) for flag in by_term)
    name = f"tvm_scatter_multiply_group_{columns}_{dtype}_{flags}"
    source = _multiply_source(name, columns, dtype, by_term)
    return call(name, source, sums, left, right, *begins, stride)


def _multiply_source(name: str, columns: int, dtype: str, by_term: tuple[bool, bool]) -> str:
    left_by_term, right_by_term = (int(flag) for flag in by_term)
    flags = f"{left_by_term}, {right_by_term}"
    count = columns // 2
    kind, number = ("bf16", "__nv_bfloat16") if dtype == "bfloat16" else ("f16", "__half")
    places = ", ".join(f"%{at}" for at in range(count))
    sums = ", ".join(f'"+f"(sums[{at // 8 * 16 + at % 8}])' for at in range(count))
    return f"""{_PARTS}__forceinline__ __device__ void {name}(
    float* sums, const void* left, const void* right, int left_begin, int right_begin,
    int stride) {{
  const unsigned short* rows = static_cast<const unsigned short*>(left);
  const unsigned short* columns = static_cast<const unsigned short*>(right);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  rows -= {"left_begin" if left_by_term else "threadIdx.y % 4 * 1024"};
  unsigned long long first = tvm_scatter_describe(rows, 8);
  unsigned long long second = tvm_scatter_describe(columns, {"stride" if right_by_term else "8"});
  asm volatile("{{ .reg .pred adds; setp.ne.b32 adds, %{count + 2}, 0;"
               "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind} "
               "{{{places}}}, %{count}, %{count + 1}, adds, 1, 1, {flags}; }}"
               : {sums}
               : "l"(first), "l"(second), "r"(1));
#else
  int lane = threadIdx.x;
  rows -= left_begin;
  columns -= right_begin;
  for (int at = 0; at < {count}; ++at) {{
    int line = lane / 4 + at / 2 % 2 * 8 + {"left_begin" if left_by_term else "0"};
    int column = at / 4 * 8 + lane % 4 * 2 + at % 2 + {"right_begin" if right_by_term else "0"};
    for (int term = 0; term < 16; ++term) {{
      int of_left = term + {"0" if left_by_term else "left_begin"};
      int of_right = term + {"0" if right_by_term else "right_begin"};
      sums[at / 8 * 16 + at % 8] +=
          tvm_scatter_element<{number}>(rows, 0, line, of_left, {left_by_term}) *
          tvm_scatter_element<{number}>(columns, stride, column, of_right, {right_by_term});
    }}
  }}
#endif
}}
"""
