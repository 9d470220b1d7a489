"""``batch``: several independent scatters of equal shapes, as one call.

A GPU computes them with as many launches as one scatter needs. The tensors are not stacked: each
scatter keeps its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.names import BATCH
from tvm_scatter.ops.own_operators import call_of, register_operator
from tvm_scatter.ops.scatter_call import ScatterCall

#: Attributes that a batch has in addition to those of its scatters: the operator and the count.
_OPERATOR, _COUNT = "scatter", "scatters"


def batch(scatters: Sequence[ScatterCall], earlier: Sequence[Any] = ()) -> relax.Call:
    """Compute independent scatters by one call.

    Parameters
    ----------
    scatters : sequence of ScatterCall
        The scatters. They differ in their operands only, whose shapes and types are equal. No
        scatter uses the result of another, and none reads a tensor that another overwrites.
    earlier : sequence of relax.Expr
        Tensors that must be computed before the scatters.

    Returns
    -------
    results : relax.Call
        A tuple of the results, in the order of ``scatters``.
    """
    first = scatters[0].to_call()
    attrs = dict(first.attrs.items()) | {_OPERATOR: first.op.name, _COUNT: len(scatters)}
    operands = [tensor for scatter in scatters for tensor in scatter.tensors]
    return call_of(BATCH, [relax.Tuple(operands), relax.Tuple(list(earlier))], attrs)


def is_batch(value: Any) -> bool:
    """Whether an expression is a call of :func:`batch`."""
    return operator_of(value) == BATCH


def scatters_of(call: relax.Call) -> list[ScatterCall]:
    """The scatters that a call of :func:`batch` computes."""
    attrs = {str(name): value for name, value in call.attrs.items()}
    operator, count = str(attrs.pop(_OPERATOR)), int(attrs.pop(_COUNT))
    operands = list(call.args[0].fields)
    width = len(operands) // count
    scatters = []
    for at in range(0, len(operands), width):
        data, *indices, updates = operands[at : at + width]
        alone = call_of(operator, [data, relax.Tuple(indices), updates], attrs)
        scatters.append(ScatterCall.from_call(alone))
    return scatters


def earlier_of(call: relax.Call) -> tuple[Any, ...]:
    """The tensors that a call of :func:`batch` waits for."""
    return tuple(call.args[1].fields)


def waiting_for(call: relax.Call, earlier: Sequence[Any]) -> relax.Call:
    """The same call of :func:`batch`, with other tensors that it waits for."""
    return relax.Call(call.op, [call.args[0], relax.Tuple(list(earlier))], attrs=call.attrs)


def describe(call: relax.Call) -> str:
    """A short text for people: the number of scatters and their operator."""
    return f"{int(call.attrs[_COUNT])} x {call.attrs['operator']}"


def register() -> None:
    """Register the operator with TVM. Calling it again changes nothing."""
    register_operator(BATCH, _infer_type)


def _infer_type(call: relax.Call, _context: Any) -> Any:
    return relax.TupleType([each.data.ty for each in scatters_of(call)])
