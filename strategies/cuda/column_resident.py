"""Column resident: some columns of a batch are held in shared memory, and read and written once."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import ceil_div
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.strategies.cuda.codegen.launch import launch
from tvm_scatter.strategies.cuda.codegen.source import accumulate_bytes
from tvm_scatter.strategies.cuda.codegen.target import shared_memory_limit

#: Columns that a block may hold, the most first: whole sectors of memory in each row.
_COLUMNS = (128, 96, 64, 48, 32, 24, 16, 8)
#: Enough blocks for all multiprocessors.
_ENOUGH_BLOCKS = 128


class ColumnResident(Implementation):
    """A block for some columns of each batch: few batches of wide rows fill the machine, too.

    It has not been measured yet. So it says no cost, and is used only where it is asked for.
    """

    name = "column_resident"
    accumulates_wide = True
    fuses = True
    summary = "a few dozen batches of short columns, an index for each element"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        if problem.reduces.needs_count:
            return "it keeps no counts"
        if not (problem.extent * problem.slice).is_static:
            return "the size of a column must be known"
        if not self.knobs(problem, target)["columns"]:
            needed = _bytes(problem, min(_COLUMNS))
            return f"{min(_COLUMNS)} columns take {needed} bytes and a block has " + str(
                shared_memory_limit(target)
            )
        return None

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        limit, width = shared_memory_limit(target), problem.slice.constant
        fitting = [n for n in _COLUMNS if _bytes(problem, n) <= limit]
        # Where a last block would be partly empty, others come first.
        fitting.sort(key=lambda n: ceil_div(width, n) * n - width)
        batches = problem.batch.constant if problem.batch.is_static else _ENOUGH_BLOCKS
        enough = [n for n in fitting if batches * ceil_div(width, n) >= _ENOUGH_BLOCKS]
        return {
            "columns": tuple(dict.fromkeys((*enough[:1], *fitting))),
            "threads": (1024, 512),
            "unroll": (4, 8),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        sizes, columns = operands.sizes, config["columns"]
        source = "out" if operands.data is None else "data"
        launch(
            operands,
            ("column_resident",),
            f"  resident_columns<P, {columns}, {config['unroll']}>(out, {source}, updates, "
            "indices, sizes, shared);",
            blocks=sizes.batch * ceil_div(sizes.slice, columns),
            threads=config["threads"],
            shared_bytes=max(_bytes(operands.problem, columns), 1),
            resolves_every_index=True,
        )


def _bytes(problem: ScatterProblem, columns: int) -> int:
    return problem.extent.constant * columns * accumulate_bytes(problem.data_dtype)
