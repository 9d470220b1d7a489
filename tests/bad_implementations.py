"""Implementations for llvm that are wrong in every way a tuner must stand; imported by workers."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter import Implementation, strategy_for
from tvm_scatter.emit.operands import Operands
from tvm_scatter.selection.strategy import Config


class _Bad(Implementation):
    deterministic = True

    def refusal(self, problem: Any, target: Any) -> str | None:
        # Only where a test asks for it, by a size that nobody else uses.
        return None if problem.extent.constant == EXTENT else "it is for tests"


#: The extent of the problems that these implementations take.
EXTENT = 4099


class Wrong(_Bad):
    """Copies the data and applies no update."""

    name = "wrong"

    def emit(self, operands: Operands, config: Config) -> None:
        with T.serial(tirx.IntImm("int64", operands.sizes.data_size)) as i:
            T.buffer_store(operands.out, operands.data[i], [i])


class Silent(_Bad):
    """Writes nothing, so that it would pass with the answer of whoever ran before."""

    name = "silent"

    def emit(self, operands: Operands, config: Config) -> None:
        T.evaluate(tirx.IntImm("int32", 0))


class Hangs(_Bad):
    """Never returns."""

    name = "hangs"

    def emit(self, operands: Operands, config: Config) -> None:
        T.evaluate(tirx.call_extern("int32", "pause"))
        self_again = tirx.call_extern("int32", "pause")
        with T.serial(tirx.IntImm("int64", 1 << 40)):
            T.evaluate(self_again)


class Crashes(_Bad):
    """Takes its process down."""

    name = "crashes"

    def emit(self, operands: Operands, config: Config) -> None:
        T.evaluate(tirx.call_extern("int32", "abort"))


class Uncompilable(_Bad):
    """Cannot be built."""

    name = "uncompilable"

    def emit(self, operands: Operands, config: Config) -> None:
        raise ValueError("error: this kernel has no code")


BAD = {kind.name: kind for kind in (Wrong, Silent, Hangs, Crashes, Uncompilable)}


def register() -> None:
    """Add them to the table for llvm, harmless when they are there."""
    table = strategy_for("llvm")
    assert table is not None
    for name, kind in BAD.items():
        if name not in table.implementations:
            table.add_implementation(kind(), plevel=2)


def unregister() -> None:
    """Take them out of the table again; other tests go through all that are in it."""
    table = strategy_for("llvm")
    assert table is not None
    table._entries = [entry for entry in table._entries if entry[1].name not in BAD]


register()
