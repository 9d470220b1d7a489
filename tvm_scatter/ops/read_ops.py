"""The Relax operators of this package that read by index.

TVM's own index one axis (``relax.take``) or the leading axes (``relax.index_tensor``), or do not
define whether negative indices count from the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from tvm_scatter.errors import ScatterError

from .arguments import (
    checked_axes,
    checked_axis,
    components_of,
    integer,
    need_indices,
    need_tensor,
    rank_of,
)
from .own_operators import call_of, register_operator
from .read_forms import ByAxes, ByElements, ByTuples, Form

INDEX = "relax.tvm_scatter.index"
GATHER_ELEMENTS = "relax.tvm_scatter.gather_elements"
GATHER_ND = "relax.tvm_scatter.gather_nd"
NAMES = (INDEX, GATHER_ELEMENTS, GATHER_ND)


def index(
    data: relax.Expr,
    indices: Sequence[relax.Expr],
    axes: Sequence[int],
    *,
    wrap_negative: bool = True,
    in_range: bool = False,
    checked: bool = False,
    operator: str = "index",
) -> relax.Expr:
    """Read at indices along some axes, an index tensor for each: NumPy's ``x[i, :, j]``.

    Parameters
    ----------
    data : relax.Expr
        Any shape of rank at least 1.
    indices : sequence of relax.Expr
        Integer tensors that broadcast against each other to a shape I.
    axes : sequence of int
        The axis of ``data`` that each index tensor addresses, counted from the front, ascending.
    wrap_negative : bool
        Whether negative indices count from the end.
    in_range : bool
        Whether all indices are proved to be in range, so that none need be checked.
    checked : bool
        Whether :func:`~tvm_scatter.ops.expectations.expect_indices` has returned the first index,
        so that a bad one is reported without a check of its own.
    operator : str
        The name of the operator in errors.

    Returns
    -------
    result : relax.Expr
        ``data[indices]``. As in NumPy, I replaces the indexed axes if these are adjacent; otherwise
        I comes first.

    Raises
    ------
    ScatterError
        If the data has no such axes, or the indices do not broadcast.
    """
    rank = rank_of(operator, data)
    tensors = need_indices(operator, indices)
    axes = checked_axes(operator, axes, rank, len(tensors))
    attrs = {"axes": axes, "wrap_negative": bool(wrap_negative), "operator": operator}
    attrs |= {"in_range": bool(in_range), "checked": bool(checked)}
    return call_of(INDEX, [data, relax.Tuple(tensors)], attrs)


def gather_elements(
    data: relax.Expr,
    index: relax.Expr,
    axis: int,
    *,
    wrap_negative: bool = False,
    in_range: bool = False,
    checked: bool = False,
    operator: str = "gather_elements",
) -> relax.Expr:
    """Read one element for each element of ``index``: PyTorch's ``gather``.

    Parameters
    ----------
    data : relax.Expr
        Any shape D of rank at least 1.
    index : relax.Expr
        Integers of shape I, of the rank of D; ``I[d] <= D[d]`` for every axis but ``axis``.
    axis : int
        The axis that the indices address, counted from the front.
    wrap_negative, in_range, checked, operator
        As in :func:`index`.

    Returns
    -------
    result : relax.Expr
        Shape I.

    Raises
    ------
    ScatterError
        If an operand is no tensor, or the data has no such axis.
    """
    axis = checked_axis(operator, axis, rank_of(operator, data))
    need_tensor(operator, "index", index)
    attrs = {"axis": axis, "wrap_negative": bool(wrap_negative), "operator": operator}
    attrs |= {"in_range": bool(in_range), "checked": bool(checked)}
    return call_of(GATHER_ELEMENTS, [data, index], attrs)


def gather_nd(
    data: relax.Expr,
    indices: relax.Expr,
    batch_dims: int = 0,
    *,
    wrap_negative: bool = True,
    in_range: bool = False,
    checked: bool = False,
    operator: str = "gather_nd",
) -> relax.Expr:
    """Read at positions given by index tuples, which lie along the last axis of ``indices``.

    Parameters
    ----------
    data : relax.Expr
        Any shape D of rank at least 1.
    indices : relax.Expr
        Integers of shape (..., M); the last axis holds one index for each of the M axes that follow
        the batch axes.
    batch_dims : int
        The number of leading axes that data and indices share.
    wrap_negative, in_range, checked, operator
        As in :func:`index`.

    Returns
    -------
    result : relax.Expr
        Shape ``(..., *D[batch_dims + M:])``.

    Raises
    ------
    ScatterError
        If an operand is no tensor, M is unknown, or the data has fewer axes than are indexed.
    """
    rank = rank_of(operator, data)
    need_tensor(operator, "indices", indices)
    batch_dims = integer(operator, "batch_dims", batch_dims)
    if not 0 <= batch_dims < max(rank, 1):
        raise ScatterError(
            f"{operator}: batch_dims {batch_dims} is out of range for data of rank {rank}."
        )
    _check_tuples(operator, indices, batch_dims, rank)
    attrs = {
        "batch_dims": batch_dims,
        "wrap_negative": bool(wrap_negative),
        "in_range": bool(in_range),
        "checked": bool(checked),
        "operator": operator,
    }
    return call_of(GATHER_ND, [data, indices], attrs)


def _check_tuples(operator: str, indices: relax.Expr, batch_dims: int, rank: int) -> None:
    """Raise if tuples are longer than the data has axes, as far as shapes are known."""
    components = components_of(operator, indices)
    if components is None:
        return
    if batch_dims >= indices.ty.ndim or batch_dims + components > rank:
        raise ScatterError(
            f"{operator}: tuples of {components} indices in a tensor of rank {indices.ty.ndim}, "
            f"after {batch_dims} batch axes, are too long for data of rank {rank}."
        )


def index_tensors(call: relax.Call) -> list[Any]:
    """The index tensors of a call that reads by index, or that checks such a call."""
    indices = call.args[1]
    return list(indices.fields) if isinstance(indices, relax.Tuple) else [indices]


def by_index(read: relax.Call, first: relax.Expr) -> relax.Call:
    """The same read with another first index tensor."""
    data, indices, *others = read.args
    several = isinstance(indices, relax.Tuple)
    changed = relax.Tuple([first, *indices.fields[1:]]) if several else first
    return relax.Call(read.op, [data, changed, *others], attrs=read.attrs)


def register() -> None:
    """Register the operators with TVM. Calling it again changes nothing."""
    for name, infer in (
        (INDEX, _infer_index),
        (GATHER_ELEMENTS, _infer_gather_elements),
        (GATHER_ND, _infer_gather_nd),
    ):
        register_operator(name, infer)


def _infer_index(call: relax.Call, _context: Any) -> Any:
    data, indices = call.args
    axes = tuple(int(axis) for axis in call.attrs["axes"])
    ranks = [index.ty.ndim for index in indices.fields]
    rank = data.ty.ndim - len(axes) + max(ranks)
    return _read_type(ByAxes(axes), data, list(indices.fields), rank)


def _infer_gather_elements(call: relax.Call, _context: Any) -> Any:
    data, index = call.args
    form = ByElements(data.ty.ndim, int(call.attrs["axis"]))
    return _read_type(form, data, [index], index.ty.ndim)


def _infer_gather_nd(call: relax.Call, _context: Any) -> Any:
    data, index = call.args
    form = ByTuples(int(call.attrs["batch_dims"]), int(index.ty.shape[-1]))
    rank = index.ty.ndim - 1 + data.ty.ndim - form.batch - form.components
    return _read_type(form, data, [index], rank)


def _read_type(form: Form, data: Any, indices: Sequence[Any], rank: int) -> Any:
    shapes = [getattr(tensor.ty.shape, "values", None) for tensor in (data, *indices)]
    known = [list(shape) for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return relax.TensorType(None, data.ty.dtype, data.ty.vdevice, rank)
    shape = form.shape(known[0], known[1:])
    return relax.TensorType(shape, data.ty.dtype, data.ty.vdevice)
