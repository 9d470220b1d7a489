"""ONNX's ``OneHot``, whose depth and values may be known at run time only.

TVM's importer gives values of another type than those of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from tvm_scatter.errors import ScatterError

from .onnx_sizes import sizes_in


def one_hot(
    bb: Any, operator: str, opset: int, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """``OneHot``: indices that are out of range select nothing."""
    indices, depth, values = inputs
    rank = indices.ty.ndim + 1
    axis = int(attributes.get("axis", -1))
    if not -rank <= axis < rank:
        raise ScatterError(
            f"{operator}: axis {axis} is out of range for a result of rank {rank}; it must be in "
            f"[{-rank}, {rank - 1}]."
        )
    axis %= rank

    def spread(indices: te.Tensor, values: te.Tensor, depth: Any) -> te.Tensor:
        def value(*at: Any) -> Any:
            index = tirx.Cast("int64", indices(*at[:axis], *at[axis + 1 :]))
            chosen = tirx.any(index == at[axis], index + depth == at[axis])
            return tirx.Select(chosen, values[1], values[0])

        shape = (*indices.shape[:axis], depth, *indices.shape[axis:])
        return te.compute(shape, value, name="one_hot")

    (size,) = sizes_in(bb, operator, depth, 1)
    return bb.emit_te(spread, indices, values, size, primfunc_name_hint="one_hot")
