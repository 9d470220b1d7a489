"""What only a check would read is not computed where there is no such check.

Numbers in tensors are checked under ``raise`` only. The sum of lengths, which must be the number of
entries, then is read by nothing else.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from tvm_scatter.lowering.target import strategy_of
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.expectations import EXPECT_NUMBERS
from tvm_scatter.options import current_options

from .functions import with_changes, with_values


def UncheckedNumbers() -> tvm.transform.Pass:
    """The pass. It changes nothing under ``raise``."""

    def unchecked(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        return with_changes(mod, lambda _, function: _without_checks(mod, function))

    return tvm.transform.module_pass(unchecked, opt_level=0, name="UncheckedNumbers")


def _without_checks(mod: tvm.IRModule, function: relax.Function) -> relax.Function | None:
    checked: dict[Any, relax.Expr] = {}

    def visit(expression: Any) -> None:
        if isinstance(expression, relax.SeqExpr):
            for block in expression.blocks:
                for binding in block.bindings:
                    if _is_unchecked(getattr(binding, "value", None)):
                        checked[binding.var] = binding.value.args[0]

    relax.analysis.post_order_visit(function, visit)
    return with_values(mod, function, checked) if checked else None


def _is_unchecked(value: Any) -> bool:
    if operator_of(value) != EXPECT_NUMBERS or isinstance(value.args[1].ty, relax.ShapeType):
        return False
    _, strategy = strategy_of(value.args[0])
    return strategy is not None and strategy.backend.bounds_under(current_options()) != "raise"
