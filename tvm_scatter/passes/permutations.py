"""Rewrites what is done with permutations: their sort is one scatter, and a scatter by one writes
all of its data, which need not be read.
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from tvm_scatter.lowering.target import strategy_of
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.names import INDEX_PUT
from tvm_scatter.ops.scatter_call import ScatterCall
from tvm_scatter.ops.shapes import static_shape, unwritten
from tvm_scatter.passes.analysis.index_analysis import IndexAnalysis
from tvm_scatter.passes.analysis.index_claims import Claims, covers
from tvm_scatter.passes.analysis.index_rules.accesses import is_permutation
from tvm_scatter.passes.analysis.integer_ranges import Unproven

from .functions import Emit

_ARGSORT = "relax.argsort"


def is_sort(value: Any) -> bool:
    """Whether an expression lists the positions of elements in ascending order."""
    return operator_of(value) == _ARGSORT and not value.attrs.descending


def is_sort_of_permutation(var: Any, value: Any, known: IndexAnalysis) -> bool:
    """Whether a variable is the order of a vector that holds each number below its length once."""
    if not is_sort(value):
        return False
    [data], shape = value.args, static_shape(value)
    facts, result = known(data), known(var)
    if facts is None or result is None or shape is None or len(shape) != 1:
        return False
    if strategy_of(data)[1] is None or not isinstance(data, relax.Var) or data.ty.vdevice:
        return False
    try:
        return is_permutation(facts, shape[0], shape[0], known.ranges) and bool(result.distinct)
    except Unproven:
        return False


def inverse(value: relax.Call, emit: Emit, known: str) -> relax.Call:
    """The inverse of the permutation that a call sorts: each number is written to its place."""
    [permutation], type_ = value.args, value.ty
    [size], dtype = type_.shape.values, str(type_.dtype)
    return ScatterCall(
        form=INDEX_PUT,
        data=emit(unwritten(type_)),
        indices=(permutation,),
        updates=emit(relax.op.arange(0, size, 1, dtype)),
        axes=(0,),
        unique=True,
        in_range=True,
        known=known,
        operator="argsort",
    ).to_call()


def writes_all(call: ScatterCall, found: Claims) -> bool:
    """Whether nothing of the data of a scatter is in its result."""
    plain = call.reduces.is_store and not (call.fill or call.in_place)
    return plain and call.data.ty.vdevice is None and covers(call, found)
