"""Checks of numbers: each must obey a rule, such as not to be negative."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import relax, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_scatter.emit.error_text import raise_error
from tvm_scatter.emit.index_check import IndexCheck
from tvm_scatter.emit.parameters import PRIM_FUNC_ATTRS, opaque_block
from tvm_scatter.emit.wrapping import kept_apart
from tvm_scatter.ops.expectations import (
    ASCENDING,
    ASSERTED,
    AT_MOST,
    EQUAL,
    NOT_NEGATIVE,
    NOT_ZERO,
)
from tvm_scatter.ops.shapes import SymbolTable

#: For each rule, whether it holds for a number, the one before it, and the limit.
HOLDS: dict[str, Callable[[Any, Any, Any], Any]] = {
    ASCENDING: lambda number, before, limit: number >= before,
    ASSERTED: lambda number, before, limit: number != 0,
    AT_MOST: lambda number, before, limit: number <= kept_apart(limit),
    EQUAL: lambda number, before, limit: number == kept_apart(limit),
    NOT_NEGATIVE: lambda number, before, limit: number >= 0,
    NOT_ZERO: lambda number, before, limit: number != 0,
}
#: The number that tells a 0 that breaks a rule; those beside it tell those from 1 on. It is one
#: that never breaks the rule itself or, where all others do, that hardly any tensor holds.
_FAR = {ASCENDING: 2**63 - 1}
_ELSEWHERE = 3 * 2**61


def misfit(rule: str, number: Any, before: Any, limit: Any) -> Any:
    """What is checked like an index, of the extent ``limit + 1``: 0 if a number obeys the rule.

    Else it is the number or, if that would be in range, another one far from it. Nothing overflows.
    """
    within = tirx.all(number >= 0, number < _breaking(rule, limit))
    told = tirx.Select(within, _exchanged(rule, number), number)
    return tirx.Select(HOLDS[rule](number, before, limit), tirx.IntImm("int64", 0), told)


def _number_of(rule: str, misfit: Any, limit: Any) -> Any:
    """The number that broke the rule."""
    near = _exchanged(rule, misfit)
    return tirx.Select(tirx.all(near >= 0, near < _breaking(rule, limit)), near, misfit)


def _exchanged(rule: str, number: Any) -> Any:
    """For a number from 0 on the one that tells it, and the other way round."""
    return number ^ tirx.IntImm("int64", _FAR.get(rule, _ELSEWHERE))


def _breaking(rule: str, limit: Any) -> Any:
    """How many numbers from 0 on, none above the limit, can break a rule."""
    return {AT_MOST: 0, NOT_NEGATIVE: 0, EQUAL: limit}.get(rule, 1)


@dataclass(frozen=True)
class NumberCheck(IndexCheck):
    """A check of numbers, written as a check of indices, which are their :func:`misfit`.

    The extent is the limit plus one.

    Attributes
    ----------
    what : str
        What errors call a number, or the whole text of an assertion.
    rule : str
        The rule.
    """

    what: str = ""
    rule: str = ""

    @staticmethod
    def of(operator: str, what: str, rule: str, room: Any, misfits: Any) -> NumberCheck:
        """The check of an index tensor, ``misfits``, against the first size of ``room``."""
        symbols = SymbolTable()
        shape = symbols.shape(operator, room)
        return NumberCheck(
            operator=operator,
            data=room,
            data_shape=shape,
            data_dtype=str(room.ty.dtype),
            indices=[misfits],
            shapes=(symbols.shape(operator, misfits),),
            extents=shape[:1],
            interleaved=False,
            wrap_negative=False,
            index_dtypes=("int64",),
            what=what,
            rule=rule,
        )

    def error(self, status: Any) -> tuple[str, list[Any]]:
        limit = status[3] - 1
        number = _number_of(self.rule, status[2], limit)
        place = [] if self.shapes[0] in ((), (1,)) else self._position(status)
        return error_of(self.operator, self.what, self.rule, number, limit, place)


def error_of(
    operator: str, what: str, rule: str, number: Any, limit: Any, place: list[Any]
) -> tuple[str, list[Any]]:
    """The exception's name and the parts of its message, for a number that breaks a rule."""
    if rule == ASSERTED:
        return "RuntimeError", [what]
    wanted = [limit] if rule in (AT_MOST, EQUAL) else []
    return "ValueError", [
        f"{operator}: {what} is ",
        number,
        *place,
        f"; it must {rule}",
        *wanted,
        ".",
    ]


def check_number(
    bb: relax.BlockBuilder,
    tensor: relax.Expr,
    number: Any,
    limit: Any,
    *,
    rule: str,
    what: str,
    operator: str,
) -> relax.Expr:
    """Emit a check of a number that the host knows, and return ``tensor``."""
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_attr({**PRIM_FUNC_ATTRS, "tirx.is_host_func": True})
            T.arg("tensor", T.handle())
            found, most = (T.arg(name, tirx.Var(name, "int64")) for name in ("number", "limit"))
            with opaque_block():
                with T.If(tirx.Not(HOLDS[rule](found, found, most))):
                    with T.Then():
                        raise_error(*error_of(operator, what, rule, found, most, []))
    func = bb.add_func(builder.get(), "check_number")
    call = relax.op.call_tir_inplace(func, [tensor, number, limit], 0, tensor.ty)
    return bb.emit(call)
