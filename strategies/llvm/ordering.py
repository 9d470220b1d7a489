"""The order of updates by destination on a CPU.

Counters for all destinations say where each one's updates begin. Where these are too many, it is a
radix sort, and a look at neighbouring keys.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.operands import Operands
from tvm_scatter.emit.ordering import Ordering
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes

from .steps import loops
from .steps.counting import CountingSort
from .steps.radix import RadixSort
from .steps.records import Field


def _workspace(problem: ScatterProblem, sizes: Sizes, target: Any) -> Any:
    kind = CountingSort if CountingSort.suits(problem) else RadixSort
    return kind(problem, sizes).workspace_bytes


def _emit(operands: Operands, offsets: Any) -> None:
    if CountingSort.suits(operands.problem):
        sort = CountingSort(operands.problem, operands.sizes)
        sort.emit(operands, 0, offsets, Field(operands.out).store)
        return
    keys, items = RadixSort(operands.problem, operands.sizes).emit(operands, offset=0)
    size = loops.settle(operands.sizes.items)
    places = loops.int64(loops.settle(operands.sizes.destinations))

    def key_at(at: Any) -> Any:
        """The key at a position, and beyond the ends one that no other has."""
        inside = tirx.all(at >= 0, at < size)
        beyond = tirx.Select(at < 0, loops.int64(-1), places)
        return T.bind(tirx.if_then_else(inside, loops.int64(keys[at]), beyond))

    def write(start: Any, length: Any) -> None:
        with loops.serial(length) as i:
            at = T.bind(start + i)
            # A destination without updates begins where the next one does.
            before, key = key_at(at - 1), key_at(at)
            with loops.serial(key - before) as empty:
                T.buffer_store(offsets, tirx.Cast("int32", at), [before + 1 + empty])
            with T.If(at < size):
                with T.Then():
                    T.buffer_store(operands.out, tirx.Cast("int32", items[at]), [at])

    loops.for_each_chunk(size + 1, loops.SERIAL_WORK, size, write)


ORDERING = Ordering(_workspace, _emit)
