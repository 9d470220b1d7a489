"""Sizes that an ONNX model gives as tensors, and sizes that must be equal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax, tirx

from tvm_scatter.errors import ScatterError
from tvm_scatter.importers.shapes import differ, shape_of, text
from tvm_scatter.ops.expectations import expect_sizes
from tvm_scatter.ops.host_numbers import on_host
from tvm_scatter.ops.shapes import same_shape

_SLICE = tvm.ir.Op.get("relax.strided_slice")


def sizes_in(bb: Any, operator: str, tensor: Any, count: int | None = None) -> list[Any]:
    """The sizes that a tensor holds: numbers if it is constant, else new symbolic sizes.

    Parameters
    ----------
    operator : str
        The name of the operator in errors.
    tensor : relax.Expr
        A shape, a single size, a scalar, or a vector.
    count : int, optional
        How many sizes there must be. Then the length of a vector may be known at run time only.

    Raises
    ------
    ScatterError
        If there are others, or their number is not known.
    """
    sizes = _known_sizes(tensor)
    if sizes is None:
        if count is not None and tensor.ty.ndim == 1:
            tensor = with_shape(bb, operator, "a vector of sizes", tensor, (count,))
        sizes = _read_sizes(bb, operator, tensor)
    if count is not None and len(sizes) != count:
        raise ScatterError(f"{operator}: {len(sizes)} sizes are given, but there must be {count}.")
    return sizes


def as_tensor(bb: Any, value: Any) -> Any:
    """A tensor, or one of the sizes that are given in its place."""
    if tvm.ir.is_prim_expr(value):
        value = relax.ShapeExpr([value])
    if isinstance(value, relax.ShapeExpr):
        value = bb.emit(relax.op.shape_to_tensor(value))
    return bb.normalize(value)


def from_the_front(operator: str, axes: Sequence[int], rank: int) -> list[int]:
    """Axes, of which some may be counted from behind.

    Raises
    ------
    ScatterError
        If there is no such axis.
    """
    wrong = [axis for axis in axes if not -rank <= axis < rank]
    if wrong:
        raise ScatterError(
            f"{operator}: axis {wrong[0]} must be at least {-rank} and less than {rank}."
        )
    return [axis % rank for axis in axes]


def expect_known_length(operator: str, tensor: Any) -> None:
    """Raise if a vector holds any number of sizes, since then the rank of a result is unknown.

    Raises
    ------
    ScatterError
        If that is so.
    """
    is_tensor = isinstance(tensor, relax.Expr) and isinstance(tensor.ty, relax.TensorType)
    if is_tensor and tensor.ty.ndim == 1 and not isinstance(shape_of(tensor)[0], int):
        raise ScatterError(
            f"{operator}: a vector of type {tensor.ty} holds the sizes, and its length must be a "
            "known number."
        )


def _known_sizes(tensor: Any) -> list[Any] | None:
    if isinstance(tensor, relax.ShapeExpr):
        return [int(size) if isinstance(size, tirx.IntImm) else size for size in tensor]
    if tvm.ir.is_prim_expr(tensor):
        return [int(tensor) if isinstance(tensor, tirx.IntImm) else tensor]
    if isinstance(tensor, tvm.ir.GenericConst):
        return [int(size) for size in tensor.value.numpy().reshape(-1)]
    return None


def _read_sizes(bb: Any, operator: str, tensor: Any) -> list[Any]:
    expect_known_length(operator, tensor)
    count = shape_of(tensor)[0] if tensor.ty.ndim else 1
    vector = bb.emit(relax.op.reshape(bb.emit(relax.op.astype(tensor, "int64")), (count,)))
    # An error that a size is out of range names the variable.
    name = re.sub(r"\W+", "_", operator)
    sizes = [tirx.Var(f"{name}_size{i}", "int64") for i in range(count)]
    found = bb.emit(relax.op.tensor_to_shape(bb.emit(on_host(vector))))
    bb.match_cast(found, relax.ShapeType(sizes))
    return list(sizes)


def with_shape(bb: Any, operator: str, what: str, tensor: Any, expected: Sequence[Any]) -> Any:
    """The tensor, after a check of its shape: here if the sizes are known, else at run time."""
    shape = shape_of(tensor)
    if len(shape) != len(expected) or any(map(differ, shape, expected)):
        raise ScatterError(
            f"{operator}: {what} of shape {text(shape)} does not match the expected shape "
            f"{text(expected)}."
        )
    if same_shape(shape, expected):
        return tensor
    return bb.emit(
        expect_sizes(tensor, shape, expected, shape=expected, what=what, operator=operator)
    )


def within_bounds(bb: Any, tensor: Any) -> Any:
    """The tensor; if it is a slice, then one that ends where the sliced tensor does.

    TVM's importer takes a slice up to a symbolic size for as long as that, and reads on behind the
    end of a shorter tensor.
    """
    made = bb.lookup_binding(tensor) if isinstance(tensor, relax.Var) else tensor
    if not isinstance(made, relax.Call) or made.op != _SLICE or not made.attrs.assume_inbound:
        return tensor
    return bb.emit(relax.op.strided_slice(*made.args, assume_inbound=False))
