"""Sums along rows, of which each logit of a softmax has one: their terms, as expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, te, tirx

from tvm_scatter.emit.computed_updates import (
    BRANCH,
    function_name,
    ravelled,
    substitute,
    unravelled,
)
from tvm_scatter.emit.expressions import all_of
from tvm_scatter.ops.shapes import is_one
from tvm_scatter.problem.reductions import FLOATS

from .inlined import NotInlined
from .row_reductions import RowReduction, reduction_of


@dataclass(frozen=True)
class RowSum:
    """A sum along rows that a function computes from other tensors.

    Attributes
    ----------
    var : relax.Var
        The variable of the sums.
    call : relax.Call
        What it is bound to.
    function : tvm.tirx.PrimFunc
        The function, as :meth:`.inlined.Inliner.reduction` has made it.
    """

    var: Any
    call: relax.Call
    function: Any

    @property
    def leaves(self) -> list[Any]:
        """The tensors that the function reads."""
        return list(self.call.args[1].fields)

    def terms(
        self,
        logit: Any,
        sums: te.Tensor,
        tensors: Mapping[Any, te.Tensor],
        at: Sequence[Any],
        shape: Sequence[Any],
    ) -> Any:
        """The term of a sum at each of the elements that have its logit.

        Parameters
        ----------
        logit : expression
            The logit of an element, which reads ``sums``.
        tensors : mapping
            The tensors of the leaves.
        at, shape : sequence of Var, of expression
            The coordinates of the element, and the sizes of these axes.

        Raises
        ------
        NotInlined
            If a logit depends on more than one sum, or has more or fewer elements than its sum.
        """
        found = reduction_of(self.function)
        if not isinstance(found.store.value, tirx.Add) or str(found.value.ty.dtype) not in FLOATS:
            raise NotInlined("a logit is a sum of floats")
        place = _place(logit, sums)
        depends = {*tirx.analysis.undefined_vars(logit)}
        for index in place:
            depends |= {*tirx.analysis.undefined_vars(index)}
        first = len(shape)
        while first > 0 and at[first - 1] not in depends:
            first -= 1
        row = _in_row(found, at[first:], shape[first:])
        return _over_tensors(found, [*place, *row], [tensors[leaf] for leaf in self.leaves])


def _place(logit: Any, sums: te.Tensor) -> Sequence[Any]:
    """Where a logit reads a sum."""

    def reads(expression: Any) -> list[Any]:
        calls = all_of(expression, tvm.ir.Call)
        loads = [each for each in calls if function_name(each) == "tensor_load"]
        return [list(each.args[1:]) for each in loads if each.args[0].same_as(sums)]

    for call in all_of(logit, tvm.ir.Call):
        if function_name(call) == BRANCH and any(map(reads, call.args[1:])):
            raise NotInlined("only some logits are computed from a sum")
    places = reads(logit)
    if not places or not all(
        all(map(tvm_ffi.structural_equal, places[0], other)) for other in places
    ):
        raise NotInlined("a logit is computed from no single sum")
    return places[0]


def _in_row(found: RowReduction, columns: Sequence[Any], sizes: Sequence[Any]) -> list[Any]:
    """The coordinates in a row that is summed, at a column of the elements that have its logit."""
    row = found.sizes[found.rows :]
    if not all(isinstance(size, int | tirx.IntImm) for size in sizes):
        raise NotInlined("the number of columns is unknown")
    known = [int(size) for size in sizes]
    if prod(known) != prod(row):
        raise NotInlined(f"{prod(known)} columns have one logit, a sum of {prod(row)} terms")
    long = [column for column, size in zip(columns, known, strict=True) if size != 1]
    if [size for size in known if size != 1] == [size for size in row if size != 1]:
        left = iter(long)
        return [tirx.IntImm("int64", 0) if is_one(size) else next(left) for size in row]
    return unravelled(ravelled(columns, known), row)


def _over_tensors(found: RowReduction, places: Sequence[Any], tensors: Sequence[te.Tensor]) -> Any:
    """An element that is reduced, at some place, as an expression of other tensors."""
    buffers = list(found.function.params)[: len(tensors)]
    tensor_of = dict(zip(buffers, tensors, strict=True))
    known = dict(zip(found.axes, places, strict=True))
    for buffer, tensor in tensor_of.items():
        for dim, size in zip(buffer.shape, tensor.shape, strict=True):
            if isinstance(dim, tvm.ir.Var):
                known[dim] = size
    value = substitute(found.value, known)

    def load(each: Any) -> Any:
        return tensor_of[each.source](*each.indices)

    return tvm_ffi.structural_map(value, (tvm.ir.TensorLoad, load))
