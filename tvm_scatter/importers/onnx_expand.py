"""ONNX's ``Expand`` with sizes that only the run time knows.

TVM's importer takes the wanted sizes as they are. Where a size of the input is another one at run
time, TVM reads behind the input's end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tvm import relax, te, tirx
from tvm.sym import Analyzer

from tvm_scatter.errors import ScatterError
from tvm_scatter.importers.shapes import differ, shape_of, text
from tvm_scatter.ops.expectations import expect_sizes
from tvm_scatter.ops.shapes import same_size
from tvm_scatter.problem.sizes import as_expression

from .onnx_sizes import sizes_in


class _Axis(NamedTuple):
    """An axis of the input, and what becomes of it.

    Attributes
    ----------
    size : int or expression
        The input's size.
    result : int or expression
        The size of the result.
    must : int or expression
        What the input's size must be.
    """

    size: Any
    result: Any
    must: Any


def expand(
    bb: Any, operator: str, opset: int, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """``Expand``: a size of one takes the other's place, on either side."""
    data, shape = inputs
    own, wanted = list(shape_of(data)), sizes_in(bb, operator, shape)
    rank = max(len(own), len(wanted))
    sizes = [1] * (rank - len(own)) + own
    wanted = [1] * (rank - len(wanted)) + wanted
    if any(map(_never_fit, sizes, wanted)):
        raise ScatterError(
            f"{operator}: input of shape {text(own)} does not fit {text(wanted)}; sizes must be "
            "equal, or one of them 1."
        )
    is_shape = isinstance(shape, relax.ShapeExpr)
    axes = [_axis(size, other, is_shape) for size, other in zip(sizes, wanted, strict=True)]
    if len(own) < rank:
        data = bb.emit(relax.op.reshape(data, sizes))
    must = [axis.must for axis in axes]
    if not all(map(same_size, sizes, must)):
        data = bb.emit(expect_sizes(data, sizes, must, what="input", operator=operator))
    return _broadcast(bb, data, axes)


def _never_fit(size: Any, wanted: Any) -> bool:
    return differ(size, wanted) and size != 1 and not _keeps(wanted)


def _keeps(wanted: Any) -> bool:
    """Whether a wanted size leaves the input's as it is."""
    return isinstance(wanted, int) and wanted in (1, -1)


def _axis(size: Any, wanted: Any, is_shape: bool) -> _Axis:
    """How an axis is expanded.

    Parameters
    ----------
    is_shape : bool
        Whether the wanted size is one of another tensor. torch.onnx writes a variable where the
        result has the shape of that tensor, and later operators rely on it.
    """
    if _keeps(wanted) or same_size(size, wanted):
        return _Axis(size, size, size)
    if isinstance(size, int):
        must = size if size == 1 else _unless_one(wanted, size, wanted)
        return _Axis(size, wanted if size == 1 else size, must)
    larger = isinstance(wanted, int) or _at_most(size, wanted)
    given = larger or (is_shape and isinstance(wanted, tirx.Var))
    result = wanted if given else _unless_one(wanted, size, wanted)
    return _Axis(size, result, _unless_one(size, 1, result))


def _at_most(size: Any, wanted: Any) -> bool:
    """Whether a size is certainly no larger than another, such as the maximum of it and others."""
    return bool(Analyzer().can_prove(size <= wanted))


def _unless_one(size: Any, if_one: Any, other: Any) -> Any:
    """``other``, or ``if_one`` if a size is 1 at run time."""
    return tirx.Select(size == 1, as_expression(if_one), as_expression(other))


def _broadcast(bb: Any, data: Any, axes: Sequence[_Axis]) -> Any:
    shape = [axis.result for axis in axes]
    if all(same_size(axis.size, axis.result) for axis in axes):
        return data
    if all(axis.size == 1 or same_size(axis.size, axis.result) for axis in axes):
        return relax.op.broadcast_to(data, shape)

    # TVM's own function reads each axis in one of two ways, and here the run time decides.
    def read(data: te.Tensor, *shape: Any) -> te.Tensor:
        def place(size: Any, at: Any) -> Any:
            return tirx.Select(size == 1, tirx.IntImm("int64", 0), at.astype("int64"))

        return te.compute(shape, lambda *at: data(*map(place, data.shape, at)), name="expand")

    return bb.emit_te(read, data, *shape, primfunc_name_hint="expand")
