"""Reductions of rows that are read by index, each computed with its rows by one function."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import tvm_ffi
from tvm import relax, s_tir, tirx
from tvm.target import Target

from tvm_scatter.emit.computed_updates import loads_of
from tvm_scatter.emit.expressions import all_of, are_neighbours, is_by_index, moves
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.shapes import is_empty, is_one, static_shape
from tvm_scatter.selection.backend import backend_of

from .inlined import NotInlined

#: The attribute of a function that reduces rows of what it computes itself.
REDUCES_ROWS = "tvm_scatter.reduces_rows"
_REDUCTIONS = ("relax.sum", "relax.max", "relax.min", "relax.mean")
_PRODUCT = "relax.matmul"
#: Elements of the longest row that a few threads of a GPU reduce while others wait for rows of
#: their own.
_LONGEST_ROW = 4096


@dataclass(frozen=True)
class RowReduction:
    """A function of one reduction.

    Attributes
    ----------
    function : tvm.tirx.PrimFunc
        The function.
    axes : list of Var
        The coordinates of an element that is reduced: those of the result's element, then those of
        the place in the row. The innermost is the last.
    sizes : list of (int or expression)
        The number of values of each.
    rows : int
        How many of the axes are the result's.
    store : tvm.tirx.BufferStore
        Takes an element into the result's.
    first : expression
        What an element of the result is before that.
    """

    function: tirx.PrimFunc
    axes: list[Any]
    sizes: list[Any]
    rows: int
    store: tirx.BufferStore
    first: Any

    @property
    def value(self) -> Any:
        """The element that is reduced."""
        return self.store.value.b

    @property
    def combine(self) -> Any:
        """Makes one expression of two."""
        return {tirx.Add: lambda a, b: a + b, tirx.Max: tirx.max, tirx.Min: tirx.min}[
            type(self.store.value)
        ]

    @property
    def length(self) -> int:
        """The elements of a row."""
        return prod(self.sizes[self.rows :])

    def reads(self) -> list[Any]:
        """The loads of the element that read by index."""
        return [load for load in loads_of(self.value) if is_by_index(load)]


def is_row_reduction(call: Any) -> bool:
    """Whether a call reduces the last axes of a tensor, whose sizes are known."""
    if operator_of(call) not in (*_REDUCTIONS, _PRODUCT):
        return False
    shape, result = static_shape(call.args[0]), static_shape(call)
    if shape is None or result is None or is_empty(call):
        return False
    if call.op.name == _PRODUCT:
        return _is_of_single_rows(call)
    if call.attrs.axis is None:
        return False
    axes = sorted(int(axis) % len(shape) for axis in call.attrs.axis)
    row = shape[len(shape) - len(axes) :]
    return (
        0 < len(axes) < len(shape)
        and axes == list(range(len(shape) - len(axes), len(shape)))
        and all(isinstance(size, int | tirx.IntImm) and int(size) > 0 for size in row)
    )


def summed(call: relax.Call) -> tuple[relax.Call, int]:
    """The reduction of a call, and the number that its result is to be divided by."""
    if call.op.name != "relax.mean":
        return call, 1
    axes = [int(axis) for axis in call.attrs.axis]
    return relax.op.sum(call.args[0], axes, bool(call.attrs.keepdims)), _reduced_length(call)


def reduced_length(call: relax.Call) -> int | None:
    """How many elements a row reduction makes one of; ``None`` for a product."""
    return None if call.op.name == _PRODUCT else _reduced_length(call)


def _reduced_length(call: relax.Call) -> int:
    return prod(int(call.args[0].ty.shape[int(axis)]) for axis in call.attrs.axis)


def reduction_of(function: tirx.PrimFunc) -> RowReduction:
    """Read a function that :meth:`.inlined.Inliner.reduction` has made."""
    [block] = reducing_blocks(function)
    kinds = [axis.iter_type for axis in block.iter_vars]
    rows = kinds.index(tirx.IterVar.CommReduce)
    sizes = [axis.dom.extent for axis in block.iter_vars]
    return RowReduction(
        function,
        [axis.var for axis in block.iter_vars],
        [int(size) if isinstance(size, tirx.IntImm) else size for size in sizes],
        rows,
        block.body,
        block.init.value,
    )


def check_rows(found: RowReduction, target: Target) -> None:
    """Raise :class:`NotInlined` if rows are better read from memory than computed."""
    backend = backend_of(target)
    last = found.axes[-1]
    row = found.axes[found.rows :]
    if not any(moves(load, axis) for load in found.reads() for axis in row):
        raise NotInlined("no row is read by index")
    if backend.is_gpu and found.length > _LONGEST_ROW:
        raise NotInlined(f"a row of {found.length} elements is too long for a warp")
    if backend.fuses_vectors_only and not all(
        are_neighbours(load, last) for load in loads_of(found.value)
    ):
        raise NotInlined("neighbours in a row are computed from what are no neighbours")


def _is_of_single_rows(call: relax.Call) -> bool:
    """Whether a product multiplies single rows with single columns of equal batches."""
    rows, columns = (static_shape(operand) for operand in call.args)
    if rows is None or columns is None or not 2 < len(rows) == len(columns):
        return False
    width = rows[-1]
    return (
        all(map(tvm_ffi.structural_equal, rows[:-2], columns[:-2]))
        and isinstance(width, int | tirx.IntImm)
        and int(width) > 0
        and is_one(rows[-2])
        and is_one(columns[-1])
    )


def has_parallel_axes_alone(function: tirx.PrimFunc) -> bool:
    """Whether a function has axes, and computes what it has for each place of them by itself."""
    axes = [axis for block in all_of(function.body, s_tir.SBlock) for axis in block.iter_vars]
    return bool(axes) and all(axis.iter_type == tirx.IterVar.DataPar for axis in axes)


def reducing_blocks(function: tirx.PrimFunc) -> list[s_tir.SBlock]:
    """The blocks of a function that reduce."""
    return [block for block in all_of(function.body, s_tir.SBlock) if block.init is not None]
