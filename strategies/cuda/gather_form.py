"""Gather form: each output is written once, from the update that wins there or from the data."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, at_least, ceil_div
from tvm_scatter.problem.vectors import widest_vector
from tvm_scatter.selection.arithmetic import larger
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import Terms, Work
from tvm_scatter.strategies.cuda.codegen.launch import aligned_to, launch

from .parallel_injective import lanes_for
from .steps import contention, stages

_THREADS = 256
#: The most indices of a batch that every block reads itself. Beyond, a map of winners is cheaper.
_MOST_SEARCHED = 1024
#: Cycles of a multiprocessor for a block that does next to nothing, on an H200.
_BLOCK_CYCLES = 250.0
#: Cycles of a multiprocessor for an access of a thread, and of a thread from one to the next.
_STEP_CYCLES, _COLUMN_CYCLES = 0.4, 3000.0


class GatherForm(Implementation):
    """Plain updates by the inverse of the index. Data that is overwritten is not copied.

    The winner of a place is the item with the greatest number, so that the last update wins.
    """

    name = "gather_form"
    deterministic = True
    fuses = True
    summary = "plain updates of long rows, and last-wins without sorting"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        if not problem.reduces.is_store:
            return "only plain updates can be gathered"
        if problem.in_place and not _is_searchable(problem):
            return "in place it compares each index with the others, which must be few"
        return None

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        search = (1, 0) if _is_searchable(problem) and not problem.in_place else (0,)
        return {"search": search, "unroll": (4, 1, 2)}

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        return 0 if config["search"] or problem.in_place else sizes.destinations * 8

    def cost(self, work: Work, config: Config) -> Terms:
        problem, moved = work.problem, work.streams(2 * work.data_bytes)
        vectors = work.slice / (_THREADS * work.vector * config["unroll"])
        spans = larger(vectors, 1.0)
        if problem.in_place:
            rows = work.batch * work.count
            return {
                "launches": work.launches(1),
                "streams": work.streams(work.written_bytes),
                "searches": work.sectors(rows * spans * work.count),
                "blocks": work.cycles(_BLOCK_CYCLES * rows * spans / work.machine.multiprocessors),
            }
        if config["search"]:
            rows = work.batch * work.extent
            return {
                "launches": work.launches(1),
                "streams": moved,
                "searches": work.sectors(rows * spans * work.count),
                "rows": work.sectors(rows * spans),
            }
        winners = 8 * work.destinations
        # Accesses of a thread to a row, one after the other.
        lanes = float(min(lanes_for(problem, work.vector), _THREADS))
        columns = larger(work.width / (lanes * work.vector), 1.0)
        return {
            "launches": work.launches(3),
            "streams": moved + work.streams(work.index_bytes + winners),
            "sectors": work.sectors(work.items),
            "misses": work.misses(work.items, winners),
            "rows": work.cycles(
                _STEP_CYCLES * work.destinations * lanes * columns / work.machine.multiprocessors
                + _COLUMN_CYCLES * (columns - 1.0)
            ),
            "hot atomics": work.cycles(contention.of_numbers(work, "int64")),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        if operands.problem.in_place:
            _last_only(operands, config["unroll"])
        elif config["search"]:
            _by_search(operands, config["unroll"])
        else:
            _by_map(operands, config["unroll"])


def _is_searchable(problem: ScatterProblem) -> bool:
    if problem.fused:
        # A block then copies a span of a row, from the updates or from the data alike.
        return False
    few = problem.count.is_static and problem.count.constant <= _MOST_SEARCHED
    if problem.in_place:
        return few and not problem.index_slice
    long_rows = not problem.index_slice and problem.slice.constant >= _THREADS
    return few and long_rows


def _by_search(operands: Operands, unroll: int) -> None:
    sizes = operands.sizes
    _by_span(operands, unroll, "gather_by_search", "out, data, updates", sizes.batch * sizes.extent)


def _last_only(operands: Operands, unroll: int) -> None:
    sizes = operands.sizes
    _by_span(operands, unroll, "write_last", "out, updates", sizes.batch * sizes.count)


def _by_span(operands: Operands, unroll: int, function: str, tensors: str, rows: Any) -> None:
    """Launch a device routine with a block for each span of columns of each row."""
    problem, sizes = operands.problem, operands.sizes
    vector = widest_vector(problem)
    # At least 1, because the device divides by it, and a symbolic width may be 0.
    spans = at_least(ceil_div(sizes.slice, _THREADS * vector * unroll), 1)

    def call(width: int, turns: int) -> str:
        return (
            f"{function}<P, {width}, {turns}>({tensors}, indices, sizes, "
            "static_cast<Offset>(spans));"
        )

    _launch_aligned(
        operands,
        call(vector, unroll),
        # Element by element a block takes the same columns as with vectors.
        call(1, unroll * vector),
        vector,
        rows * spans,
        {"spans": ("long long", spans)},
    )


def _by_map(operands: Operands, unroll: int) -> None:
    problem, sizes = operands.problem, operands.sizes
    winners = "  Offset* const winners = reinterpret_cast<Offset*>(workspace);\n"
    stages.stride_launch(
        operands,
        winners + "  fill(winners, Offset(-1), int64(sizes.destinations()));",
        sizes.destinations,
    )
    stages.stride_launch(
        operands,
        winners + "  find_winners<P>(winners, indices, sizes);",
        sizes.items,
        ("gather",),
        resolves_every_index=True,
    )
    vector = widest_vector(problem)
    lanes = min(lanes_for(problem, vector), _THREADS)
    call = "gather_winners<P, {lanes}, {vector}, {unroll}>(out, data, updates, winners, sizes);"
    _launch_aligned(
        operands,
        call.format(lanes=lanes, vector=vector, unroll=unroll),
        call.format(lanes=lanes, vector=1, unroll=1),
        vector,
        ceil_div(sizes.destinations * lanes, _THREADS * unroll),
        {},
        winners,
    )


def _launch_aligned(
    operands: Operands,
    aligned: str,
    otherwise: str,
    vector: int,
    blocks: Any,
    arguments: dict[str, tuple[str, Any]],
    prologue: str = "",
) -> None:
    tensors = ("out", "updates") if operands.data is None else ("data", "out", "updates")
    body = (
        f"{prologue}  if ({aligned_to(vector, *tensors)})\n    {aligned}\n  else\n    {otherwise}"
    )
    launch(operands, ("gather",), body, blocks, _THREADS, arguments)
