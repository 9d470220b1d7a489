"""Functions of the lines of a tensor: it is seen as (outer, length, inner), along its length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.target import Target
from tvm.tirx.script import builder as T

from tvm_scatter.emit.parameters import MADE_FOR, PRIM_FUNC_ATTRS, Parameters
from tvm_scatter.emit.scan import Scan
from tvm_scatter.emit.smallest import Smallest
from tvm_scatter.emit.sort import Sort
from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.signature import Dim
from tvm_scatter.problem.symbolic_size import SymbolicSize

from .target import target_of

#: A parameter of a function: its name, shape and data type.
Parameter = tuple[str, Sequence[Dim], str]


class LeftToTVM(ScatterError):
    """Why TVM computes something of lines. Its text is a clause."""


@dataclass(frozen=True)
class PlannedLines:
    """What a kind of target computes of the lines of a tensor.

    Attributes
    ----------
    by : Scan, Smallest or Sort
        How it does that.
    problem : callable
        The problem, given the values of symbolic sizes.
    values : mapping
        Those in the module.
    type_ : relax.TensorType
        The type of the result.
    parameters : sequence of Parameter
        The data and the result.
    """

    by: Scan | Smallest | Sort
    problem: Callable[[Mapping[str, Any]], Any]
    values: Mapping[str, Any]
    type_: relax.TensorType
    parameters: Sequence[Parameter]

    @property
    def form(self) -> str:
        """How it is computed, as a clause."""
        return self.by.form(self.problem(self.values))

    def emit(self, bb: relax.BlockBuilder, name: str, data: relax.Expr) -> relax.Expr:
        """Emit a call of a function of this name: its result."""
        return call_of(
            bb,
            name,
            data,
            self.type_,
            self.parameters,
            self.by.workspace(self.problem(self.values)),
            lambda values, *buffers: self.by.emit(self.problem(values), *buffers),
        )


def sizes_of_lines(
    shape: tuple[Dim, ...], axis: int | None, values: Mapping[str, Any]
) -> tuple[Any, Any, Any]:
    """The sizes before an axis, of itself, and behind it; without an axis, all is one line."""
    parts = (
        ((), shape, ())
        if axis is None
        else (shape[:axis], shape[axis : axis + 1], shape[axis + 1 :])
    )
    outer, length, inner = (SymbolicSize.product(part).value(values) for part in parts)
    return outer, length, inner


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


def call_of(
    bb: relax.BlockBuilder,
    name: str,
    data: relax.Expr,
    type_: relax.TensorType,
    parameters: Sequence[Parameter],
    workspace: Any,
    emit: Callable[..., None],
) -> relax.Expr:
    """Emit a call of a function of the lines of a tensor: its result.

    Parameters
    ----------
    type_ : relax.TensorType
        The type of the result.
    parameters : sequence of Parameter
        The data and the result.
    workspace : int or expression
        The bytes of memory that the function needs besides, which then is its last parameter.
    emit : callable
        As :func:`function_of` takes it.
    """
    parameters, types = list(parameters), [type_]
    has_memory = not (isinstance(workspace, int) and workspace == 0)
    if has_memory:
        size = workspace if isinstance(workspace, int) else "bytes"
        parameters.append(("workspace", (size,), "uint8"))
        types.append(relax.TensorType([workspace], "uint8", data.ty.vdevice))
    function = bb.add_func(function_of(target_of(data), parameters, emit), name)
    results = bb.emit(relax.op.call_tir(function, [data], types if has_memory else type_))
    return bb.emit(relax.TupleGetItem(results, 0)) if has_memory else results
