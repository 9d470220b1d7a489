"""The Relax operators of this package, for what TVM's own scatter operators cannot say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Op

from tvm_scatter.problem.reductions import canonical_reduction

from .arguments import (
    checked_axes,
    checked_axis,
    checked_runs,
    need_indices,
    need_tensor,
    need_tensors,
    rank_of,
)

SCATTER_ELEMENTS = "relax.tvm_scatter.scatter_elements"
INDEX_PUT = "relax.tvm_scatter.index_put"
SCATTER_ND = "relax.tvm_scatter.scatter_nd"
ASSIGN = "relax.tvm_scatter.assign"
#: The operators that scatter, and the attributes by which each says where it writes.
PLACES: dict[str, tuple[str, ...]] = {
    SCATTER_ELEMENTS: ("axis",),
    INDEX_PUT: ("axes",),
    SCATTER_ND: (),
    ASSIGN: ("axis", "runs"),
}
NAMES = tuple(PLACES)
#: What is left of a scatter once it is known which update each place gets.
CHOOSE = "relax.tvm_scatter.choose"
#: Several scatters of one shape that are computed together.
BATCH = "relax.tvm_scatter.batch"
#: An attribute of a scatter in place, whose data is no caller's: nobody sees it if the call fails.
TEMPORARY = "temporary"

#: (source, first position in it, first position in the data, length), along one axis.
Run = tuple[int, int, int, int]


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
        Whether the value in ``data`` takes part.
    wrap_negative : bool
        Whether negative indices count from the end (ONNX) or are out of bounds (PyTorch).
    unique : bool
        A promise that no two updates share a destination.
    ordered : bool
        Whether the last of several updates with one destination must win.
    in_place : bool
        Whether the result takes the place of ``data``, which nothing may read afterwards. The pass
        ``ReuseBuffers`` asks for it where that is proved.
    operator : str
        What errors and :func:`tvm_scatter.explain` call it.

    Returns
    -------
    result : relax.Expr
        A new tensor of the shape and type of ``data``.

    Raises
    ------
    ScatterError
        If shapes, types, axis or reduction do not fit.
    """
    # A 0-d tensor has one axis of one element.
    axis = checked_axis(operator, axis, max(rank_of(operator, data), 1))
    need_tensor(operator, "index", index)
    need_tensor(operator, "updates", updates)
    attrs = _attributes(
        axis=axis,
        operator=operator,
        reduction=reduction,
        include_self=include_self,
        wrap_negative=wrap_negative,
        unique=unique,
        ordered=ordered,
        in_place=in_place,
    )
    return relax.Call(Op.get(SCATTER_ELEMENTS), [data, index, updates], attrs=attrs)


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
    operator: str = "index_put",
) -> relax.Expr:
    """Write at positions given by one index tensor for each of some axes: NumPy's ``x[i, :, j]``.

    Parameters
    ----------
    data : relax.Expr
        Any shape of rank at least 1.
    indices : sequence of relax.Expr
        Integer tensors that broadcast against each other to a shape I.
    values : relax.Expr
        Broadcasts to the shape of ``data[indices]``: I stands in the place of the indexed axes
        where these are adjacent, and first where not, as in NumPy.
    axes : sequence of int, optional
        The axis of ``data`` that each index tensor addresses; by default the leading ones.
    reduction, include_self, wrap_negative, unique, ordered, in_place
        As in :func:`scatter_elements`.
    operator : str
        What errors and :func:`tvm_scatter.explain` call it.

    Returns
    -------
    result : relax.Expr
        A new tensor of the shape and type of ``data``.

    Raises
    ------
    ScatterError
        If shapes, types, axes or reduction do not fit.
    """
    rank = rank_of(operator, data)
    tensors = need_indices(operator, indices)
    need_tensor(operator, "values", values)
    axes = checked_axes(operator, range(len(tensors)) if axes is None else axes, rank, len(tensors))
    attrs = _attributes(
        axes=axes,
        operator=operator,
        reduction=reduction,
        include_self=include_self,
        wrap_negative=wrap_negative,
        unique=unique,
        ordered=ordered,
        in_place=in_place,
    )
    return relax.Call(Op.get(INDEX_PUT), [data, relax.Tuple(tensors), values], attrs=attrs)


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
    operator: str = "scatter_nd",
) -> relax.Expr:
    """Write at positions given by tuples along the last axis of one index tensor.

    Parameters
    ----------
    data : relax.Expr
        Any shape D of rank at least 1.
    indices : relax.Expr
        Integers of shape (..., M); the last axis holds one index for each of the first M axes.
        Without any, M being 0, each update goes to all of the data.
    updates : relax.Expr
        Shape (..., *D[M:]).
    reduction, include_self, wrap_negative, unique, ordered, in_place
        As in :func:`scatter_elements`.
    operator : str
        What errors and :func:`tvm_scatter.explain` call it.

    Returns
    -------
    result : relax.Expr
        A new tensor of the shape and type of ``data``.

    Raises
    ------
    ScatterError
        If the reduction is unknown, or an operand is no tensor. Shapes and types are checked when
        the module is compiled.
    """
    for name, operand in (("data", data), ("indices", indices), ("updates", updates)):
        need_tensor(operator, name, operand)
    attrs = _attributes(
        operator=operator,
        reduction=reduction,
        include_self=include_self,
        wrap_negative=wrap_negative,
        unique=unique,
        ordered=ordered,
        in_place=in_place,
    )
    return relax.Call(Op.get(SCATTER_ND), [data, indices, updates], attrs=attrs)


def assign(
    data: relax.Expr,
    sources: Sequence[relax.Expr],
    runs: Sequence[Run],
    axis: int,
    operator: str = "assign",
) -> relax.Expr:
    """Write ranges of tensors over ranges of an axis, all known at compile time.

    Parameters
    ----------
    data : relax.Expr
        Any shape of rank at least 1.
    sources : sequence of relax.Expr
        Each has the shape of ``data`` except along the axis.
    runs : sequence of Run
        Their places in the data lie inside it and do not overlap.
    axis : int
        The axis, counted from the front.
    operator : str
        What errors and :func:`tvm_scatter.explain` call it.

    Returns
    -------
    result : relax.Expr
        A new tensor of the shape and type of ``data``.

    Raises
    ------
    ScatterError
        If an operand is no tensor, the axis is none of the data's, or a run has not four numbers.
    """
    axis = checked_axis(operator, axis, rank_of(operator, data))
    tensors = need_tensors(operator, "sources", sources)
    numbers = flat(checked_runs(operator, runs))
    attrs = _attributes(axis=axis, runs=numbers, operator=operator, unique=True)
    return relax.Call(Op.get(ASSIGN), [data, relax.Tuple(tensors)], attrs=attrs)


def _attributes(
    *,
    operator: str,
    reduction: str = "update",
    include_self: bool = True,
    wrap_negative: bool = False,
    unique: bool = False,
    ordered: bool = False,
    in_place: bool = False,
    **places: Any,
) -> Any:
    """What every scatter has, and where this one writes."""
    return tvm.ir.make_node(
        "ir.DictAttrs",
        operator=operator,
        reduction=canonical_reduction(reduction, operator),
        include_self=bool(include_self),
        wrap_negative=bool(wrap_negative),
        unique=bool(unique),
        ordered=bool(ordered),
        in_place=bool(in_place),
        **places,
    )


def flat(runs: Sequence[Run]) -> list[int]:
    """Runs as the attribute that holds them."""
    return [int(number) for run in runs for number in run]


def runs_of(call: relax.Call) -> list[Run]:
    """The runs of a call of :func:`assign`."""
    numbers = [int(number) for number in call.attrs["runs"]]
    return [(*numbers[at : at + 4],) for at in range(0, len(numbers), 4)]  # type: ignore[misc]


def choose(data: relax.Expr, winners: relax.Expr, sources: Sequence[relax.Expr]) -> relax.Expr:
    """Take each row from one of several tensors, or from the data. All shapes are known.

    Parameters
    ----------
    data : relax.Expr
        Shape ``(batch, positions, slice)``, or a scalar that stands for all of it.
    winners : relax.Expr
        Shape ``(positions,)``, ``int32``: a row, counted through all sources, or -1 for the data.
    sources : sequence of relax.Expr
        Each of shape ``(batch, rows, slice)`` and of the type of ``data``.

    Returns
    -------
    result : relax.Expr
        A new tensor of shape ``(batch, positions, slice)``.
    """
    return relax.Call(Op.get(CHOOSE), [data, winners, relax.Tuple(list(sources))])


def _infer_type(call: relax.Call, _context: Any) -> Any:
    return call.args[0].ty


def _infer_choice(call: relax.Call, _context: Any) -> Any:
    batch, _, slice_ = call.args[2].fields[0].ty.shape
    return relax.TensorType([batch, call.args[1].ty.shape[0], slice_], call.args[0].ty.dtype)


def register() -> None:
    """Register the operators with TVM; harmless when they are there already."""
    for name in (*NAMES, CHOOSE):
        if name in Op.list_op_names():
            continue
        tvm.ir.register_op_attr(name, "FPurity", True)
        infer = _infer_choice if name == CHOOSE else _infer_type
        tvm.ir.register_op_attr(name, "FInferType", infer)
