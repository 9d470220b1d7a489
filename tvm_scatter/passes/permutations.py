"""Rewrites what is done with permutations: their sort is one scatter, and a scatter by one writes
all of its data, which need not be read.
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from tvm_scatter.lowering.target import strategy_of
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.names import INDEX_PUT, SCATTER_ELEMENTS
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
    """Whether a variable is the order of lines that hold each number below their length once."""
    if not is_sort(value):
        return False
    [data], shape = value.args, static_shape(value)
    facts, result = known(data), known(var)
    if facts is None or result is None or not shape:
        return False
    if strategy_of(data)[1] is None or not isinstance(data, relax.Var) or data.ty.vdevice:
        return False
    axis = sorted_axis(value)
    try:
        permutes = is_permutation(facts, axis, shape[axis], shape[axis], known.ranges)
    except Unproven:
        return False
    return permutes and axis in result.distinct


def sorted_axis(value: relax.Call) -> int:
    """The axis along which a call sorts a tensor."""
    return int(value.attrs.axis) % int(value.ty.ndim)


def inverse(value: relax.Call, emit: Emit, known: str) -> relax.Call:
    """The inverse of the permutation that a call sorts: each number is written to its place."""
    [permutation], type_, axis = value.args, value.ty, sorted_axis(value)
    shape, dtype = list(type_.shape.values), str(type_.dtype)
    places = emit(relax.op.arange(0, shape[axis], 1, dtype))
    if len(shape) > 1:
        line = [size if at == axis else 1 for at, size in enumerate(shape)]
        places = emit(relax.op.broadcast_to(emit(relax.op.reshape(places, line)), shape))
    return ScatterCall(
        form=INDEX_PUT if len(shape) == 1 else SCATTER_ELEMENTS,
        data=emit(unwritten(type_)),
        indices=(permutation,),
        updates=places,
        axes=(axis,),
        unique=True,
        in_range=True,
        known=known,
        operator="argsort",
    ).to_call()


def writes_all(call: ScatterCall, found: Claims) -> bool:
    """Whether nothing of the data of a scatter is in its result."""
    plain = call.reduces.is_store and not (call.fill or call.in_place)
    return plain and call.data.ty.vdevice is None and covers(call, found)
