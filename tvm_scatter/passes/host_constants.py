"""Brings constants of a module to the CPU.

A model that is exported from a GPU has its parameters there, and so has the imported module. TVM
computes with constants on the CPU when it compiles, and loads them onto the device that runs the
model later.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from .functions import with_changes


def HostConstants() -> tvm.transform.Pass:
    """The pass. A module whose constants are on the CPU already is left as it is."""

    def move(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        return with_changes(mod, _moved)

    return tvm.transform.module_pass(move, opt_level=0, name="HostConstants")


def _moved(_name: Any, function: relax.Function) -> relax.Function | None:
    found: list[bool] = []
    relax.analysis.post_order_visit(function, lambda value: found.append(_is_elsewhere(value)))
    return _Mover().visit_expr(function) if any(found) else None


@relax.expr_functor.mutator
class _Mover(relax.PyExprMutator):
    def visit_generic_const_(self, constant: tvm.ir.GenericConst) -> tvm.ir.GenericConst:
        if not _is_elsewhere(constant):
            return constant
        return tvm.ir.GenericConst(constant.value.copyto(tvm.cpu()), constant.ty)


def _is_elsewhere(expression: Any) -> bool:
    """Whether an expression is a constant tensor that is not on the CPU."""
    if not isinstance(expression, tvm.ir.GenericConst):
        return False
    tensor = expression.value
    on_host = tvm.cpu().dlpack_device_type()
    return isinstance(tensor, tvm.runtime.Tensor) and tensor.device.dlpack_device_type() != on_host
