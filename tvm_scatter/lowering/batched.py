"""``batch``: several scatters of one shape that do not depend on each other, as one call.

A GPU computes them by the launches of one. Each keeps tensors of its own: nothing is stacked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Op

from tvm_scatter.ops.operators import BATCH
from tvm_scatter.ops.scatter_call import attributes, operator_name
from tvm_scatter.options import current_options

from .legalizations import put_in_front
from .legalize import emit_together, operands_to_wait_for, strategy_of
from .lower import lower

#: Attributes of a call beside those of its scatters: their operator and how many there are.
_OPERATOR, _COUNT = "scatter", "scatters"


def batch(scatters: Sequence[relax.Call], earlier: Sequence[Any] = ()) -> relax.Call:
    """Compute scatters together.

    Parameters
    ----------
    scatters : sequence of relax.Call
        Calls of one operator of this package, with equal attributes and operands of equal shapes
        and types. None depends on another, and none reads what another overwrites.
    earlier : sequence of relax.Expr
        Tensors that must be computed before.

    Returns
    -------
    results : relax.Call
        A tuple with the result of each.
    """
    first = scatters[0]
    attrs = attributes(first) | {_OPERATOR: first.op.name, _COUNT: len(scatters)}
    operands = [leaf for call in scatters for leaf in operands_of(call)]
    return relax.Call(
        Op.get(BATCH),
        [relax.Tuple(operands), relax.Tuple(list(earlier))],
        attrs=tvm.ir.make_node("ir.DictAttrs", **attrs),
    )


def is_batch(value: Any) -> bool:
    """Whether an expression is a call of :func:`batch`."""
    return (
        isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op) and value.op.name == BATCH
    )


def scatters_of(call: relax.Call) -> list[relax.Call]:
    """The scatters that a call of :func:`batch` computes."""
    attrs = attributes(call)
    operator, count = Op.get(str(attrs.pop(_OPERATOR))), int(attrs.pop(_COUNT))
    operands = list(call.args[0].fields)
    width = len(operands) // count
    return [
        relax.Call(
            operator,
            # Only index_put takes a tuple of index tensors; every scatter takes three operands.
            [data, indices[0] if "axes" not in attrs else relax.Tuple(indices), updates],
            attrs=tvm.ir.make_node("ir.DictAttrs", **attrs),
        )
        for data, *indices, updates in (
            operands[at : at + width] for at in range(0, len(operands), width)
        )
    ]


def describe(call: relax.Call) -> str:
    """What people call it."""
    return f"{int(call.attrs[_COUNT])} x {operator_name(call)}"


def register() -> None:
    """Register the operator with TVM; a later copy of this module replaces an earlier one."""
    if BATCH not in Op.list_op_names():
        tvm.ir.register_op_attr(BATCH, "FPurity", True)
        tvm.ir.register_op_attr(BATCH, "FInferType", _infer_type)
    put_in_front((BATCH,), _legalize, ours=True)


def _infer_type(call: relax.Call, _context: Any) -> Any:
    return relax.TupleType([each.args[0].ty for each in scatters_of(call)])


def operands_of(call: relax.Call) -> list[Any]:
    """The tensors that a scatter reads: data, indices and updates."""
    data, indices, updates = call.args[:3]
    fields = list(indices.fields) if isinstance(indices, relax.Tuple) else [indices]
    return [data, *fields, updates]


def _legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """One function for all, by the implementation that the strategy selects for one of them."""
    scatters = scatters_of(call)
    target, strategy = strategy_of(scatters[0])
    assert strategy is not None, "only scatters with a strategy are put together"
    lowered = [lower(bb, each, current_options(), target.kind.name) for each in scatters]
    results = emit_together(bb, lowered, strategy, target, operands_to_wait_for(call))
    return relax.Tuple([bb.emit(result) for result in results])
