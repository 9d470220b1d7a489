"""Products of what was only widened from 16-bit floats are products of 16-bit floats.

Each term is exact in single precision, and so are the sums that are added up there: the value is
the same. Tensor cores multiply them, and nothing is written to memory in 32 bits first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax

from tvm_scatter.lowering.inlined import MOVES
from tvm_scatter.lowering.target import target_of
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.shapes import plain_shape
from tvm_scatter.passes.analysis.bindings import Bindings
from tvm_scatter.problem.reductions import HALVES
from tvm_scatter.selection.backend import backend_of

from .functions import Change, Emit, with_changes, with_values
from .report import note

_WIDE = "float32"
#: The fewest rows, columns and terms of products that tensor cores multiply.
_FEWEST, _FEWEST_TERMS = 16, 17


def NarrowProducts() -> tvm.transform.Pass:
    """The pass."""

    def narrow(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        return with_changes(mod, lambda name, function: _narrowed(mod, name.name_hint, function))

    return tvm.transform.module_pass(narrow, opt_level=0, name="NarrowProducts")


def _narrowed(mod: tvm.IRModule, name: str, function: relax.Function) -> relax.Function | None:
    bindings = Bindings(function)
    values = {each.var: each.value for each in bindings if each.fused}
    changes: dict[Any, relax.Expr | Change] = {}
    for binding in bindings:
        call = binding.value
        if not binding.fused or not _is_large(call):
            continue
        target = target_of(call.args[0])
        found = [_moves(each, values) for each in call.args]
        types = {str(each[-1].ty.dtype) for each in found if each is not None}
        if None in found or len(types) > 1 or not backend_of(target).multiplies_halves(target):
            continue
        changes[binding.var] = _product(found)
        text = f"multiplies what was widened from {types.pop()} before it is widened"
        note("products", f"{name}.{binding.var.name}", text)
    return with_values(mod, function, changes) if changes else None


def _is_large(call: Any) -> bool:
    """Whether a call is a product in single precision whose sizes may suit tensor cores."""
    if operator_of(call) != "relax.matmul" or str(call.ty.dtype) != _WIDE:
        return False
    left, right = map(plain_shape, call.args)
    if left is None or right is None or len(left) < 2 or len(right) < 2:
        return False
    sizes = ((left[-2], _FEWEST), (right[-1], _FEWEST), (left[-1], _FEWEST_TERMS))
    return all(not isinstance(size, int) or size >= least for size, least in sizes)


def _moves(tensor: Any, values: Mapping[Any, Any]) -> list[Any] | None:
    """What moves a tensor of 16-bit floats that is widened on the way, the last move first.

    The tensor stands at the end; ``None`` if there is none.
    """
    found: list[Any] = []
    while True:
        value: Any = values.get(tensor)
        name = operator_of(value)
        if name == "relax.astype" and str(value.args[0].ty.dtype) in HALVES:
            return [*found, value.args[0]]
        if name not in MOVES:
            return None
        found.append(value)
        tensor = value.args[0]


def _product(moved: list[Any]) -> Change:
    def product(emit: Emit) -> relax.Expr:
        operands = []
        for *moves, tensor in moved:
            for move in reversed(moves):
                arguments = [tensor, *move.args[1:]]
                tensor = emit(relax.Call(move.op, arguments, attrs=move.attrs))
            operands.append(tensor)
        return relax.op.matmul(*operands, out_dtype=_WIDE)

    return product
