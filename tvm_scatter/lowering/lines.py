"""Functions of the lines of a tensor: it is seen as (outer, length, inner), along its length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.target import Target
from tvm.tirx.script import builder as T

from tvm_scatter.emit.parameters import MADE_FOR, PRIM_FUNC_ATTRS, Parameters
from tvm_scatter.problem.signature import Dim
from tvm_scatter.problem.symbolic_size import SymbolicSize

#: A parameter of a function: its name, shape and data type.
Parameter = tuple[str, Sequence[Dim], str]


def sizes_of_lines(
    shape: tuple[Dim, ...], axis: int | None, values: Mapping[str, Any]
) -> tuple[Any, ...]:
    """The sizes before an axis, of itself, and behind it; without an axis, all is one line."""
    parts = (
        ((), shape, ())
        if axis is None
        else (shape[:axis], shape[axis : axis + 1], shape[axis + 1 :])
    )
    return tuple(SymbolicSize.product(part).value(values) for part in parts)


def function_of(
    target: Target, parameters: Sequence[Parameter], emit: Callable[..., None]
) -> tirx.PrimFunc:
    """A function for a target, whose body ``emit`` adds.

    Parameters
    ----------
    emit : callable
        Is given the values of the symbolic sizes, and a flat buffer for each parameter.
    """
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_attr({**PRIM_FUNC_ATTRS, MADE_FOR: str(target.kind.name)})
        declared = Parameters()
        for parameter in parameters:
            declared.add(*parameter)
        with target, declared.in_body() as buffers:
            emit(declared.symbols, *buffers)
    return builder.get()
