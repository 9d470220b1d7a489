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


@dataclass(frozen=True)
class NumberCheck(IndexCheck):
    """A check of numbers, written as a check of indices.

    The extent is the limit plus one. The index is 0 if the number obeys the rule; else it is the
    number plus the extent, or the number itself if that is negative.

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
        misfit, extent = status[2], status[3]
        number = misfit - tirx.Select(misfit < 0, tirx.IntImm("int64", 0), extent)
        place = [] if self.shapes[0] in ((), (1,)) else self._position(status)
        return error_of(self.operator, self.what, self.rule, number, extent - 1, place)


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
