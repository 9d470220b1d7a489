"""Constructors of the Relax operators that scatter, with attributes that TVM's operators lack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from tvm_scatter.problem.reductions import canonical_reduction

from .arguments import (
    checked_axes,
    checked_axis,
    checked_ordering,
    checked_ranges,
    components_of,
    need_indices,
    need_tensor,
    need_tensors,
    rank_of,
)
from .names import COPY_RANGES, INDEX_PUT, NAMES, SCATTER_ELEMENTS, SCATTER_ND, SELECT_ROWS
from .own_operators import call_of, register_operator
from .ranges import check_ranges
from .scatter_call import CopiedRange, ScatterCall, has_epilogue


def scatter_elements(
    data: relax.Expr,
    index: relax.Expr,
    updates: relax.Expr,
    axis: int = 0,
    reduction: str = "update",
    *,
    include_self: bool = True,
    wrap_negative: bool = False,
    unique: bool = False,
    ordered: bool = False,
    in_place: bool = False,
    leaves_out: bool = False,
    operator: str = "scatter_elements",
) -> relax.Expr:
    """Scatter one update for each element of ``index``: PyTorch's ``scatter`` family.

    Parameters
    ----------
    data : relax.Expr
        Any shape D.
    index : relax.Expr
        Integers of shape I, of the rank of D; ``I[d] <= D[d]`` for every axis but ``axis``.
    updates : relax.Expr
        Shape U of the same rank with ``I[d] <= U[d]`` everywhere, or a 0-d value for all.
    axis : int
        The scatter axis.
    reduction : str
        ``update``, ``add``, ``mul``, ``min``, ``max``, ``mean`` or a front end's name for one.
    include_self : bool
        Whether the value in ``data`` takes part in the reduction.
    wrap_negative : bool
        Whether negative indices count from the end (ONNX) or are out of bounds (PyTorch).
    unique : bool
        A promise that no two updates share a destination.
    ordered : bool
        Whether the last of several updates with one destination must win.
    in_place : bool
        Whether the result overwrites ``data``, which nothing may read afterwards. The pass
        ``ReuseBuffers`` sets it if it can prove that.
    leaves_out : bool
        Whether an update whose index is out of bounds is meant to be left out, whatever the policy
        for bad indices says: no error is raised, and nothing is trusted.
    operator : str
        The name of the operator in errors and in :func:`tvm_scatter.explain`.

    Returns
    -------
    result : relax.Expr
        A new tensor of the shape and type of ``data``.

    Raises
    ------
    ScatterError
        If the axis is none of the data's, the reduction is unknown, or an operand is no tensor.
        Shapes and types are checked when the module is compiled.
    """
    # A 0-d tensor counts as one with a single axis of size 1.
    axis = checked_axis(operator, axis, max(rank_of(operator, data), 1))
    need_tensor(operator, "index", index)
    need_tensor(operator, "updates", updates)
    return ScatterCall(
        form=SCATTER_ELEMENTS,
        data=data,
        indices=(index,),
        updates=updates,
        axes=(axis,),
        reduction=canonical_reduction(reduction, operator),
        include_self=include_self,
        wrap_negative=wrap_negative,
        unique=unique,
        ordered=ordered,
        in_place=in_place,
        leaves_out=leaves_out,
        operator=operator,
    ).to_call()


def index_put(
    data: relax.Expr,
    indices: Sequence[relax.Expr],
    values: relax.Expr,
    axes: Sequence[int] | None = None,
    reduction: str = "update",
    *,
    include_self: bool = True,
    wrap_negative: bool = True,
    unique: bool = False,
    ordered: bool = False,
    in_place: bool = False,
    leaves_out: bool = False,
    ordering: Any = None,
    operator: str = "index_put",
) -> relax.Expr:
    """Write at indices along some axes, an index tensor for each: NumPy's ``x[i, :, j] = v``.

    Parameters
    ----------
    data : relax.Expr
        Any shape of rank at least 1.
    indices : sequence of relax.Expr
        Integer tensors that broadcast against each other to a shape I.
    values : relax.Expr
        Broadcasts to the shape of ``data[indices]``. As in NumPy, I replaces the indexed axes if
        these are adjacent; otherwise I comes first.
    axes : sequence of int, optional
        The axis of ``data`` that each index tensor addresses; by default the leading ones.
    reduction, include_self, wrap_negative, unique, ordered, in_place, leaves_out
        As in :func:`scatter_elements`.
    ordering : relax.Expr, optional
        What :func:`tvm_scatter.order` returns for the only index tensor and the extent of its axis,
        which is the first. If the index ascends, a tuple of the offsets alone will do: int32 of
        shape (extent + 1,), where the updates of each row begin, and last where those of the last
        one end, as in the CSR format. Indices are then not checked again, and need not be read.
        An order must be that of the index: the result is undefined if it is not.
    operator : str
        The name of the operator in errors and in :func:`tvm_scatter.explain`.

    Returns
    -------
    result : relax.Expr
        A new tensor of the shape and type of ``data``.

    Raises
    ------
    ScatterError
        If the axes are none of the data's or not one for each index, the reduction is unknown, or
        an operand is no tensor. Shapes and types are checked when the module is compiled.
    """
    rank = rank_of(operator, data)
    tensors = need_indices(operator, indices)
    need_tensor(operator, "values", values)
    axes = checked_axes(operator, range(len(tensors)) if axes is None else axes, rank, len(tensors))
    return ScatterCall(
        form=INDEX_PUT,
        data=data,
        indices=tuple(tensors),
        updates=values,
        axes=tuple(axes),
        reduction=canonical_reduction(reduction, operator),
        include_self=include_self,
        wrap_negative=wrap_negative,
        unique=unique,
        ordered=ordered,
        in_place=in_place,
        leaves_out=leaves_out,
        ordering=checked_ordering(operator, ordering, tensors, axes),
        operator=operator,
    ).to_call()


def scatter_nd(
    data: relax.Expr,
    indices: relax.Expr,
    updates: relax.Expr,
    reduction: str = "update",
    *,
    include_self: bool = True,
    wrap_negative: bool = True,
    unique: bool = False,
    ordered: bool = False,
    in_place: bool = False,
    leaves_out: bool = False,
    operator: str = "scatter_nd",
) -> relax.Expr:
    """Write at positions given by index tuples, which lie along the last axis of ``indices``.

    Parameters
    ----------
    data : relax.Expr
        Any shape D of rank at least 1.
    indices : relax.Expr
        Integers of shape (..., M); the last axis holds one index for each of the first M axes.
        If M is 0, each update is applied to all of the data.
    updates : relax.Expr
        Shape (..., *D[M:]).
    reduction, include_self, wrap_negative, unique, ordered, in_place, leaves_out
        As in :func:`scatter_elements`.
    operator : str
        The name of the operator in errors and in :func:`tvm_scatter.explain`.

    Returns
    -------
    result : relax.Expr
        A new tensor of the shape and type of ``data``.

    Raises
    ------
    ScatterError
        If the reduction is unknown, an operand is no tensor, or M is symbolic. Other shapes, and
        types, are checked when the module is compiled.
    """
    for name, operand in (("data", data), ("indices", indices), ("updates", updates)):
        need_tensor(operator, name, operand)
    components_of(operator, indices)
    return ScatterCall(
        form=SCATTER_ND,
        data=data,
        indices=(indices,),
        updates=updates,
        reduction=canonical_reduction(reduction, operator),
        include_self=include_self,
        wrap_negative=wrap_negative,
        unique=unique,
        ordered=ordered,
        in_place=in_place,
        leaves_out=leaves_out,
        operator=operator,
    ).to_call()


def copy_ranges(
    data: relax.Expr,
    sources: Sequence[relax.Expr],
    ranges: Sequence[tuple[int, int, int, int]],
    axis: int,
    operator: str = "copy_ranges",
) -> relax.Expr:
    """Overwrite ranges of one axis with ranges of other tensors. All are known at compile time.

    Parameters
    ----------
    data : relax.Expr
        Any shape of rank at least 1.
    sources : sequence of relax.Expr
        Each has the shape of ``data`` except along the axis.
    ranges : sequence of CopiedRange
        (source, first position in it, first position in the data, length). Their places in the
        data lie inside it and do not overlap.
    axis : int
        The axis, counted from the front.
    operator : str
        The name of the operator in errors and in :func:`tvm_scatter.explain`.

    Returns
    -------
    result : relax.Expr
        A new tensor of the shape and type of ``data``.

    Raises
    ------
    ScatterError
        If an operand is no tensor, the data has no such axis, or a range is not four numbers or
        not inside of the tensors.
    """
    axis = checked_axis(operator, axis, rank_of(operator, data))
    sources = need_tensors(operator, "sources", sources)
    listed = checked_ranges(operator, ranges)
    check_ranges(operator, data, sources, listed, axis)
    return ScatterCall(
        form=COPY_RANGES,
        data=data,
        sources=tuple(sources),
        ranges=tuple(CopiedRange(*each) for each in listed),
        axes=(axis,),
        unique=True,
        operator=operator,
    ).to_call()


def select_rows(data: relax.Expr, winners: relax.Expr, sources: Sequence[relax.Expr]) -> relax.Expr:
    """Take each row from one of several tensors or from the data. All shapes must be static.

    Parameters
    ----------
    data : relax.Expr
        Shape ``(batch, positions, slice)``, or a scalar for all of its elements.
    winners : relax.Expr
        Shape ``(positions,)``, ``int32``: a row of the concatenated sources, or -1 for the data.
    sources : sequence of relax.Expr
        Each of shape ``(batch, rows, slice)`` and of the type of ``data``.

    Returns
    -------
    result : relax.Expr
        A new tensor of shape ``(batch, positions, slice)``.
    """
    return call_of(SELECT_ROWS, [data, winners, relax.Tuple(list(sources))])


def _infer_type(call: relax.Call, _context: Any) -> Any:
    return call.args[0].ty if not has_epilogue(call) else ScatterCall.from_call(call).ty


def _infer_selected(call: relax.Call, _context: Any) -> Any:
    batch, _, slice_ = call.args[2].fields[0].ty.shape
    return relax.TensorType([batch, call.args[1].ty.shape[0], slice_], call.args[0].ty.dtype)


def register() -> None:
    """Register the operators with TVM. Calling it again changes nothing."""
    for name in (*NAMES, SELECT_ROWS):
        register_operator(name, _infer_selected if name == SELECT_ROWS else _infer_type)
