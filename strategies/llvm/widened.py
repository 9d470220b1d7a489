"""Widened: sums 16-bit floats in a copy of the output in float32, and rounds once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, round_up
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import Terms, Work

from .steps import costs, loops, memory_costs, ordered, values
from .steps.values import WIDE

_WIDE_BYTES = item_bytes(WIDE)
_MOST_COLUMNS = 16


class Widened(Implementation):
    """As ``parallel_injective``, in float32: no order is made, and all of the output is visited.

    Sums of wide rows and of messages are kept in registers by ``sort_based``, which took down to a
    tenth of the time.
    """

    name = "widened"
    accumulates_wide = True
    deterministic = True
    summary = "16-bit sums and products of narrow rows, which are rounded once"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        if not problem.rounds:
            return "it rounds sums of 16-bit floats once, and this is none"
        if not (problem.width.is_static and problem.width.constant <= _MOST_COLUMNS):
            return f"it takes rows of up to {_MOST_COLUMNS} elements"
        return None

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        return _counts_bytes(problem, sizes) + sizes.data_size * _WIDE_BYTES

    def cost(self, work: Work, config: Config) -> Terms:
        workers = costs.owners(work)
        divided = costs.divides_places(work)
        output = memory_costs.rows_of_output(work, divided) * _WIDE_BYTES / work.element
        # The output is read to be widened, and read again and written to be rounded.
        passes = 3 * work.data_bytes + 2 * work.data_size * _WIDE_BYTES
        return {
            "launches": costs.threads(work, 4),
            "streams": work.streams(work.operand_bytes),
            "passes": work.streams(passes) + work.cycles(work.data_size) / workers,
            "finds": costs.find_in_share(work, divided, workers),
            "updates": costs.combine(work, workers),
            "counts": costs.counts(work, workers),
            "waits": costs.again_soon(work, workers),
            "misses": memory_costs.rows_apart(work, workers, output),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        problem, sizes = operands.problem, operands.sizes
        source = operands.out if operands.data is None else operands.data
        offset = _counts_bytes(problem, sizes)
        wide = loops.workspace_view(operands, offset, sizes.data_size, WIDE)

        def widen(start: Any, length: Any) -> None:
            with loops.serial(length) as i:
                at = T.bind(start + i)
                T.buffer_store(wide, values.convert(source[at], WIDE), [at])

        def round_once(start: Any, length: Any) -> None:
            with loops.serial(length) as i:
                at = T.bind(start + i)
                total, old = wide[at], source[at]
                # Conversions may change the bits of a NaN, which stays as it is without an update.
                kept = values.same_bits(total, values.convert(old, WIDE))
                rounded = values.convert(total, problem.data_dtype)
                T.buffer_store(operands.out, tirx.Select(kept, old, rounded), [at])

        size = sizes.data_size
        loops.for_each_chunk(size, loops.COPY_TASK, size, widen)
        posed = replace(problem, data_dtype=WIDE, in_place=True)
        ordered.scatter(replace(operands, problem=posed, data=None, out=wide), divide_places=True)
        loops.for_each_chunk(size, loops.COPY_TASK, size, round_once)


def _counts_bytes(problem: ScatterProblem, sizes: Sizes) -> Any:
    return round_up(ordered.counts_bytes(problem, sizes), 64)
