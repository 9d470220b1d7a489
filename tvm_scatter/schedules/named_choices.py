"""Choices of floating-point numbers that have a name, or are part of what has one.

TVM looks for the range of what has a name, and takes an integer zero for a product or a quotient of
such a choice, which is an error. It does not look into what a function returns.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

_FLOATS = ("float", "bfloat")


def HideNamedChoices() -> tvm.transform.Pass:
    """The pass: TVM takes such a choice for a function's result. Vectors have none with a name."""

    def hide(function: tirx.PrimFunc, _mod: tvm.IRModule, _context: Any) -> tirx.PrimFunc:
        named = [(tirx.Bind, _named), (tirx.Let, _named_inside)]
        return function.with_body(tvm_ffi.structural_map(function.body, named))

    return tirx.transform.prim_func_pass(hide, opt_level=0, name="HideNamedChoices")


def _named(bind: tirx.Bind) -> tirx.Bind:
    return tirx.Bind(bind.var, _without_choices(bind.value))


def _named_inside(let: tirx.Let) -> tirx.Let:
    return tirx.Let(let.var, _without_choices(let.value), let.body)


def _without_choices(value: Any) -> Any:
    return tvm_ffi.structural_map(value, (tirx.Select, _hidden))


def _hidden(choice: tirx.Select) -> Any:
    if choice.ty.dtype.startswith(_FLOATS) and choice.condition.ty.dtype == "bool":
        return tirx.if_then_else(choice.condition, choice.true_value, choice.false_value)
    return choice
