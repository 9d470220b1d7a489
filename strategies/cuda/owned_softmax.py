"""Owned softmax: each block looks for the updates of its rows, and weights these by a softmax."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.reductions import HALVES, item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import ceil_div, round_up
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import Terms, Work
from tvm_scatter.strategies.cuda.codegen.launch import by_alignment, launch
from tvm_scatter.strategies.cuda.codegen.source import accumulate_bytes
from tvm_scatter.strategies.cuda.codegen.target import shared_memory_limit

from .machines import multiprocessors
from .steps import owned_lists, segments, sorting

#: The most updates, which every block looks at and may have to list.
_MOST = 1 << 14
#: The most of a row in the mean: one block adds up what many would add up by an order.
_MOST_EACH = 1 << 12
#: The most bytes of their rows: an order shares more rows more evenly than blocks do.
_MOST_BYTES = 1 << 24
#: The more, the sooner a block has looked through all updates. Vectors of 16-bit floats have twice
#: as many elements, and take more registers than each of 1024 threads has.
_THREADS, _THREADS_OF_HALVES = (1024, 512, 256), (512, 256)
#: Numbers of a sum beside those of its elements: a greatest logit, and a sum of weights.
_BESIDE = 2
#: Bytes of static shared memory: counts of warps, and of long rows.
_STATIC_BYTES = 1024
#: Cycles for which a thread waits for an index, and for an update behind the one before.
_LOOK_CYCLES, _UPDATE_CYCLES = 250.0, 600.0
#: Cycles for an update that one warp puts into the list of its row.
_LIST_CYCLES = 10.0


class OwnedSoftmax(Implementation):
    """One launch, which needs no order of the updates: attention over the edges of a small graph.

    A row with many updates is summed in as many parts as its block has groups of lanes. So where
    bits must be equal, the knobs have one value.
    """

    name = "owned_softmax"
    deterministic = True
    accumulates_wide = True
    fuses = True
    fills = True
    finishes = True
    takes_softmax = True
    needs_softmax = True
    takes_empty = False
    summary = "the softmax over the edges of a graph of a few thousand nodes, in one launch"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        if not problem.is_static:
            return "the sizes must be known"
        if problem.items.constant > _MOST:
            return f"every block would look through {problem.items} updates, which is too many"
        rows = problem.destinations.constant
        if problem.items.constant > _MOST_EACH * rows:
            return f"a block would add up more than {_MOST_EACH} updates of each of {rows} rows"
        row_bytes = problem.width.constant * item_bytes(problem.data_dtype)
        if problem.items.constant * row_bytes > _MOST_BYTES:
            return f"an order shares rows of {problem.items} x {row_bytes} bytes more evenly"
        if not self.knobs(problem, target)["threads"]:
            return "the lists of a block need more shared memory than it has"
        return None

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        limit = shared_memory_limit(target)
        possible = [
            (blocks, threads)
            for blocks in (1, 2)
            for threads in (_THREADS_OF_HALVES if problem.data_dtype in HALVES else _THREADS)
            if (_Plan(problem, threads, blocks * multiprocessors(target)).bytes + _STATIC_BYTES)
            * blocks
            <= limit
        ]
        most = 1 if problem.deterministic else len(possible)
        return {
            "blocks_per_multiprocessor": tuple(dict.fromkeys(b for b, _ in possible[:most])),
            "threads": tuple(dict.fromkeys(t for _, t in possible[:most])),
        }

    def cost(self, work: Work, config: Config) -> Terms:
        threads = config["threads"]
        blocks = config["blocks_per_multiprocessor"] * work.machine.multiprocessors
        lanes = sorting.lanes_in_warp(work.problem, work.vector)
        teams = threads / lanes
        updates = work.items / max(min(blocks, work.destinations), 1.0)
        return {
            "launches": work.launches(1),
            "streams": work.streams(work.written_bytes + work.update_bytes),
            "looks": work.cycles(ceil_div(int(work.items), threads) * _LOOK_CYCLES),
            "lists": work.cycles(max(updates, work.hottest) * _LIST_CYCLES),
            "updates": work.cycles(max(updates, work.hottest) / teams * _UPDATE_CYCLES),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        problem, sizes, threads = operands.problem, operands.sizes, config["threads"]
        each = config["blocks_per_multiprocessor"]
        plan = _Plan(problem, threads, each * multiprocessors(operands.target))
        vector, lanes, parts = segments.whole_rows(operands)
        source = "out" if operands.data is None else "data"
        single = segments.form_of_unaligned(operands, vector)
        first = str(segments.reads_first(problem)).lower()

        def call(vector: int, whole: bool) -> str:
            return (
                f"owned_softmax<P, {threads}, {plan.groups}, {lanes}, {vector}, "
                f"{str(whole).lower()}, {first}, "
                f"{owned_lists.ahead(sizes.items, threads)}>(output, {source}, updates, indices, "
                f"sizes, {parts}u, shared, {plan.list_bytes}u);"
            )

        launch(
            operands,
            ("owned_softmax",),
            by_alignment(operands, vector, call(vector, True), call(*single)),
            plan.groups,
            threads,
            shared_bytes=plan.bytes,
            resolves_every_index=True,
            owns=True,
            together=each,
            static_bytes=_STATIC_BYTES,
        )


class _Plan:
    """How rows are shared by blocks, and the memory of a block."""

    def __init__(self, problem: ScatterProblem, threads: int, most: int) -> None:
        rows, items = problem.destinations.constant, problem.items.constant
        self.groups = max(min(most, rows), 1)
        rows_each = ceil_div(rows, self.groups)
        self.list_bytes = round_up(owned_lists.shared_bytes(items, rows_each, threads), 16)
        wide = accumulate_bytes(problem.data_dtype)
        most_elements = 16 // item_bytes(problem.data_dtype)
        self.bytes = self.list_bytes + threads * (most_elements + _BESIDE) * wide
