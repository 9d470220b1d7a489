"""Products of groups of rows, each with a matrix of its own, as in mixtures of experts."""

from __future__ import annotations

from typing import Any

from tvm_scatter.ops import grouped_product as ops

from .call import TorchCall


def grouped_mm(call: TorchCall) -> Any:
    """``_grouped_mm`` of sorted rows and a matrix for each group."""
    rows, matrices, ends = call["self"], call["mat2"], call["offs"]
    if rows.ty.ndim != 2 or matrices.ty.ndim != 3 or ends is None:
        raise call.error(
            f"only rows of rank 2, matrices of rank 3 and offs are supported; the ranks are "
            f"{rows.ty.ndim} and {matrices.ty.ndim}."
        )
    if call["bias"] is not None or call["out_dtype"] not in (None, call.node.meta["val"].dtype):
        raise call.error("bias and out_dtype are not supported.")
    return call.emit(ops.grouped_product(rows, matrices, ends, operator=call.origin))


def grouped_mm_fallback(call: TorchCall) -> Any:
    """``grouped_mm_fallback`` of transformers: what it exports for other types than bfloat16."""
    rows, matrices, ends = call["input"], call["weight"], call["offs"]
    return call.emit(ops.grouped_product(rows, matrices, ends, operator="grouped_mm_fallback"))
