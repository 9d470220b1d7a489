"""Operators of sparse tensors that leave their entries where they are, and sums of two."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import relax

from tvm_scatter.importers.shapes import differ, text

from .arithmetic import is_tensor
from .call import TorchCall
from .sparse_calls import has_sparse_layout
from .sparse_tensors import Sparse

#: The types in which sums of each are those of it, or nearer to the exact ones.
_WIDER = {
    "float16": ("float32", "float64"),
    "bfloat16": ("float32", "float64"),
    "float32": ("float64",),
}


def same(call: TorchCall) -> Sparse:
    """``clone``, and ``coalesce``: nothing here reads the entries, but adds them up."""
    sparse: Sparse = call["self"]
    return sparse


def cast(call: TorchCall) -> Sparse:
    """``to`` a wider type of floats.

    PyTorch converts what is coalesced after the entries of a place are added up, and here they are
    added up last. So other conversions, which would give other numbers, are refused.
    """
    if not has_sparse_layout(call.node):
        raise call.error("the layout of a sparse tensor cannot be changed here; use to_dense().")
    before, after = str(call["self"].values.ty.dtype), _dtype(call)
    if before != after and after not in _WIDER.get(before, ()):
        raise call.error(
            f"a sparse tensor of {before} cannot be converted to {after} here; make it dense first."
        )
    return _with_values(call, call["self"].values)


def negative(call: TorchCall) -> Sparse:
    """``neg``. Unsigned integers wrap, and TVM negates none of them."""
    values = call["self"].values
    zero = call.scalar(0, str(values.ty.dtype))
    unsigned = str(values.ty.dtype).startswith("uint")
    negated = relax.op.subtract(zero, values) if unsigned else relax.op.negative(values)
    return _with_values(call, call.emit(negated))


def quotient(call: TorchCall) -> Sparse:
    """``div`` by a number."""
    sparse, other = call["self"], call["other"]
    if not isinstance(sparse, Sparse) or (is_tensor(other) and other.ty.ndim > 0):
        raise call.error("a sparse tensor can only be divided by a number.")
    if isinstance(other, Sparse):
        raise call.error("the quotient of two sparse tensors is not supported; make them dense.")
    dtype = _dtype(call)
    divisor = call.cast(call.scalar(other, dtype), dtype)
    values = call.emit(relax.op.divide(call.cast(sparse.values, dtype), divisor))
    return replace(sparse, values=values)


def total(call: TorchCall) -> Sparse:
    """``add`` of two sparse tensors: the entries of both."""
    return _joined(call, call["alpha"])


def difference(call: TorchCall) -> Sparse:
    """``sub`` of two sparse tensors."""
    return _joined(call, -call["alpha"])


def _joined(call: TorchCall, factor: Any) -> Sparse:
    left, right = call["self"], call["other"]
    if not isinstance(left, Sparse) or not isinstance(right, Sparse):
        raise call.error("a sparse and a dense tensor cannot be added here; make both dense.")
    axes = len(left.indices)
    if (
        len(left.shape) != len(right.shape)
        or len(right.indices) != axes
        or any(map(differ, left.shape, right.shape))
    ):
        raise call.error(
            f"sparse tensors of shapes {text(left.shape)} and {text(right.shape)} must have the "
            "same shape and sparse axes."
        )
    dtype = _dtype(call)
    first, second = (call.cast(each.values, dtype) for each in (left, right))
    if factor != 1:
        second = call.emit(relax.op.multiply(second, call.scalar(factor, dtype)))
    pairs = zip(left.indices, right.indices, strict=True)
    indices = tuple(
        call.emit(relax.op.concat([call.cast(each, "int64") for each in pair], axis=0))
        for pair in pairs
    )
    values = call.emit(relax.op.concat([first, second], axis=0))
    return Sparse(indices, values, left.shape)


def _with_values(call: TorchCall, values: Any) -> Sparse:
    sparse: Sparse = call["self"]
    return replace(sparse, values=call.cast(values, _dtype(call)))


def _dtype(call: TorchCall) -> str:
    return str(call.node.meta["val"].dtype).removeprefix("torch.")
