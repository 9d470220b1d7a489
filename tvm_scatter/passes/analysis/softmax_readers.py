"""Finds logarithms of softmaxes whose elements nothing needs in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from tvm_scatter.lowering.inlined import ELEMENTWISE
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.read_ops import GATHER_ELEMENTS
from tvm_scatter.ops.shapes import same_shape, static_shape
from tvm_scatter.problem.reductions import HALVES

from .bindings import Binding, Bindings
from .effects import may_write

_REDUCTIONS = ("relax.sum", "relax.mean", "relax.max", "relax.min")


class SoftmaxReaders:
    """The readers of what operators of a function compute.

    Parameters
    ----------
    bindings : Bindings
        Those of the function.
    """

    def __init__(self, bindings: Bindings) -> None:
        self._bindings = bindings
        self._readers = bindings.readers()
        self._bound = {each.var: each for each in bindings}

    def of(self, softmax: Binding) -> Sequence[Binding] | None:
        """The readers of a result; ``None`` if one of them needs the result in memory.

        A reader does not if it reads single elements by index, or reduces rows. Elementwise
        operators may stand in front of a reduction: TVM fuses it with them.
        """
        readers = self._within(softmax)
        suit = all(_reads_elements(each, softmax.var) or self._reduces(each) for each in readers)
        return readers if readers and suit else None

    def source(self, softmax: Binding) -> Any:
        """The tensor that a softmax is of, as it lies in memory.

        That has 16 bits where it is only cast in front, as training in mixed precision does.
        """
        operand = softmax.value.args[0]
        cast = self._bound.get(operand)
        if cast is None or cast.fused != softmax.fused or not _widens(cast.value):
            return operand
        return operand if self._writes_between(cast, softmax) else cast.value.args[0]

    def _within(self, producer: Binding) -> Sequence[Binding]:
        """All readers of a result; none if some are elsewhere, or behind what writes to tensors."""
        readers = self._readers.get(producer.var, [])
        if producer.var in self._bindings.returned or not readers:
            return []
        if self._writes_between(producer, readers[-1]):
            return []
        return readers if all(each.fused == producer.fused for each in readers) else []

    def _writes_between(self, first: Binding, last: Binding) -> bool:
        """Whether anything between two operators may write to a tensor that is there already."""
        return any(may_write(each.value) for each in self._bindings.all[first.at + 1 : last.at])

    def _reduces(self, reader: Binding) -> bool:
        """Whether an operator reduces rows, or the last of a chain of elementwise ones does."""
        while operator_of(reader.value) in ELEMENTWISE and _keeps_shape(reader.value):
            following = self._within(reader)
            if len(following) != 1:
                return False
            [reader] = following
        return operator_of(reader.value) in _REDUCTIONS and _is_along_rows(reader.value)


def _is_along_rows(reduction: relax.Call) -> bool:
    """Whether a reduction reduces the last axis, among others."""
    axes, rank = reduction.attrs.axis, reduction.args[0].ty.ndim
    return axes is None or rank - 1 in [int(axis) % rank for axis in axes]


def _reads_elements(reader: Binding, var: Any) -> bool:
    """Whether an operator reads elements of each row of a tensor by an index of that row."""
    call = reader.value
    if operator_of(call) != GATHER_ELEMENTS or not call.args[0].same_as(var):
        return False
    rows, index = (static_shape(each) for each in call.args)
    if rows is None or index is None or int(call.attrs["axis"]) != len(rows) - 1:
        return False
    return not call.args[1].same_as(var) and same_shape(rows[:-1], index[:-1])


def _widens(call: Any) -> bool:
    """Whether an operator casts 16-bit floats to single precision."""
    if operator_of(call) != "relax.astype" or str(call.ty.dtype) != "float32":
        return False
    return str(call.args[0].ty.dtype) in HALVES


def _keeps_shape(call: relax.Call) -> bool:
    """Whether all that an operator reads is as large as its result, or a single number."""
    shape = static_shape(call)
    return all(
        same_shape(static_shape(each), shape)
        for each in call.args
        if isinstance(each.ty, relax.TensorType) and each.ty.ndim != 0
    )
