"""Owned rows: each block looks for the updates of its rows, and writes these once."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import ceil_div
from tvm_scatter.problem.vectors import widest_vector
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.strategies.cuda.codegen.launch import aligned_to, launch
from tvm_scatter.strategies.cuda.codegen.source import accumulate_bytes
from tvm_scatter.strategies.cuda.codegen.target import dynamic_bytes, shared_memory_limit

from .machines import multiprocessors

#: The most updates, which every block looks at and may have to list. An item takes 16 bits.
_MOST = 1 << 14
#: The most rows of a block: a row takes 16 bits, and none of them all ones.
_MOST_ROWS = (1 << 16) - 1
#: A thread with four rows takes some 90 registers, so a multiprocessor has 512 of them at a time.
_THREADS = (256, 512)
#: Threads that share a row: 1 KB of it, in accesses of 16 bytes, or less.
_LANES = (64, 32, 16)
_BLOCKS = (2, 1, 3, 4)


class OwnedRows(Implementation):
    """One launch: copies and sums, in the order of the updates; of plain ones the last wins."""

    name = "owned_rows"
    # A row with many updates is summed in as many parts as its block has teams, which a knob says.
    deterministic = False
    accumulates_wide = True
    fuses = True
    fills = True
    finishes = True
    summary = "a few thousand updates of wide rows"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        if problem.softmax:
            return "it does not weight updates by a softmax"
        if problem.index_slice:
            return "it takes rows, not an index for each element"
        if not problem.is_static:
            return "the sizes must be known"
        if problem.items.constant > _MOST:
            return f"every block would look through {problem.items} updates, which is too many"
        if not self.knobs(problem, target)["blocks_per_multiprocessor"]:
            return "the lists of a block need more shared memory than it has"
        return None

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        vectors = ceil_div(problem.width.constant, widest_vector(problem))
        lanes = [n for n in _LANES if n < 2 * vectors] or _LANES[-1:]
        fitting = [
            blocks
            for blocks in _BLOCKS
            if all(_Plan(problem, n, max(_THREADS), blocks, target).fits for n in lanes)
        ]
        return {
            "lanes": tuple(lanes),
            "blocks_per_multiprocessor": tuple(fitting),
            "threads": _THREADS,
            "unroll": (4, 2),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        problem, threads = operands.problem, config["threads"]
        blocks = config["blocks_per_multiprocessor"]
        plan = _Plan(problem, config["lanes"], threads, blocks, operands.target)
        vector = widest_vector(problem)
        mean = "true" if problem.reduces.needs_count else "false"
        source, in_place = ("out", "true") if operands.data is None else ("data", "false")

        def call(width: int) -> str:
            return (
                f"owned_rows<P, {threads}, {plan.groups}, {config['lanes']}, {width}, "
                f"{config['unroll']}, {mean}, {in_place}>"
                f"(output, {source}, updates, indices, sizes, {plan.spans}, shared);"
            )

        tensors = ("output", "updates") if operands.data is None else ("output", "updates", "data")
        launch(
            operands,
            ("owned_rows",),
            f"  if ({aligned_to(vector, *tensors)})\n    {call(vector)}\n  else\n    {call(1)}",
            plan.groups * plan.spans,
            threads,
            shared_bytes=dynamic_bytes(plan.list_bytes, plan.static_bytes),
            resolves_every_index=True,
        )


class _Plan:
    """How rows and their columns are shared by blocks, and the memory of a block."""

    def __init__(
        self, problem: ScatterProblem, lanes: int, threads: int, blocks: int, target: Any
    ) -> None:
        vector = widest_vector(problem)
        rows, width = problem.destinations.constant, problem.width.constant
        most = blocks * multiprocessors(target)
        self.spans = max(min(ceil_div(width, lanes * vector), most), 1)
        self.groups = max(min(most // self.spans, rows), 1)
        rows_each = ceil_div(rows, self.groups)
        parts = ceil_div(problem.items.constant, threads) * threads
        self.list_bytes = max(6 * parts + 4 * rows_each, 1)
        # A sum of each thread, and counts of the warps.
        self.static_bytes = threads * vector * accumulate_bytes(problem.data_dtype) + 1024
        taken = self.list_bytes + self.static_bytes
        self.fits = taken * blocks <= shared_memory_limit(target) and rows_each < _MOST_ROWS
