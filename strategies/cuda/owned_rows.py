"""Owned rows: each block looks for the updates of its rows, and writes these once."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, gcd
from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import ceil_div
from tvm_scatter.problem.vectors import widest_vector
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import Terms, Work
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import by_alignment, launch
from tvm_scatter.strategies.cuda.codegen.source import accumulate_bytes
from tvm_scatter.strategies.cuda.codegen.target import shared_memory_limit

from .machines import multiprocessors
from .steps import contention, owned_lists, sorting

#: The most updates, which every block looks at and may have to list.
_MOST = 1 << 14
#: The more, the sooner a block has looked through all updates. One has a multiprocessor for itself.
_THREADS = (1024, 512, 256)
#: Threads that share a row: 1 KB of it, in accesses of 16 bytes, or less.
_LANES = (64, 32, 16)
#: Computed rows of fewer vectors have the threads of a warp at most: they take 0.68 to 0.85 of the
#: time where a row is hot, and 0.96 to 1.07 where none is. Wider rows take 1.03 so.
_WIDE = 512
_BLOCKS = (1, 2, 3, 4)
#: Rows of a thread at a time: four take some 90 registers, more than each of 1024 threads has.
_UNROLL = (1, 2, 4)
#: So few updates are looked through sooner by small blocks than a large one begins.
_FEW_UPDATES = 1 << 10
#: From so many bytes for each multiprocessor on, small blocks have several elements on their way.
_FILLING_BYTES = 1 << 10
#: A row with more updates is summed by all teams of its block.
_LONG_ROW = device_constant("owned_rows", "kLongRow")
#: Cycles for which a thread waits: for an index; for rows, if they are copied, written in place, or
#: left as they are; for an update behind the one before, and more for each of its elements.
_LOOK_CYCLES = 250.0
_COPIED_CYCLES, _TOUCHED_CYCLES, _KEPT_CYCLES = 1400.0, 1000.0, 600.0
_UPDATE_CYCLES, _ELEMENT_CYCLES = 200.0, 12.0
#: More for an update that is computed: where its row is, is read before its first columns.
_FOUND_CYCLES = 250.0
#: Cycles for an update that one warp puts into the list of its row.
_LIST_CYCLES = 10.0
#: Cycles of a multiprocessor for a byte that is an element, read or written.
_MOVE_CYCLES = 0.27
#: Cycles to fetch the code of a division of integers, which is there for each element and row.
_DIVISION_CYCLES = 400.0


class OwnedRows(Implementation):
    """One launch: copies and sums, in the order of the updates; of plain ones the last wins.

    A row with many updates is summed in as many parts as its block has teams. So where bits must be
    equal, the knobs that say how many have one value.
    """

    name = "owned_rows"
    deterministic = True
    accumulates_wide = True
    fuses = True
    fills = True
    finishes = True
    summary = "means and other reductions of a few hundred rows, in one launch"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
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
        lanes = [n for n in _LANES if n < 2 * vectors] or list(_LANES[-1:])
        computes_rows = problem.fused and not problem.width.is_one
        if problem.fused and vectors < _WIDE:
            # One that is computed as it is read keeps the next one waiting. The fewer threads share
            # a row, the more updates of a long one are read at a time.
            few = sorting.lanes_in_warp(problem, widest_vector(problem))
            lanes = [few, *(n for n in lanes if n != few)]
        if problem.deterministic:
            lanes = lanes[:1]
        units, limit = multiprocessors(target), shared_memory_limit(target)

        def fits(n: int, blocks: int) -> bool:
            plans = [_Plan(problem, each, n, blocks * units) for each in lanes]
            return all(
                (plan.list_bytes + plan.static_bytes) * blocks <= limit
                and plan.rows_each < owned_lists.MOST_ROWS
                for plan in plans
            )

        threads = [n for n in _THREADS if fits(n, 1)]
        if problem.deterministic:
            threads = threads[:1]
        blocks = [each for each in _BLOCKS if threads and all(fits(n, each) for n in threads)]
        first = {} if problem.deterministic else _first_knobs(problem, units)
        found = {
            "lanes": lanes,
            "blocks_per_multiprocessor": blocks,
            "threads": threads or _THREADS,
            # Two such rows of a thread at a time take 1.2 of the time.
            "unroll": _UNROLL[:1] if computes_rows else _UNROLL,
        }
        return {name: _with_first(first.get(name), values) for name, values in found.items()}

    def cost(self, work: Work, config: Config) -> Terms:
        problem, threads, lanes = work.problem, config["threads"], config["lanes"]
        most = config["blocks_per_multiprocessor"] * work.machine.multiprocessors
        plan, teams = _Plan(problem, lanes, threads, most), threads / lanes
        # What the block with the hottest row has to do: parts of rows, and updates of its rows.
        parts = ceil(work.width / (plan.spans * lanes * work.vector))
        rows, busy = work.destinations / plan.groups, _busy_groups(work, plan.groups)
        updates = work.items / busy
        lines, hottest = max(work.lines / busy, 1.0), work.hottest
        together = teams * config["unroll"]
        waits = _TOUCHED_CYCLES if problem.in_place else _COPIED_CYCLES
        if work.keeps_rows:
            touched = min(updates * together / max(rows, 1.0), 1.0)
            waits = _KEPT_CYCLES + (_TOUCHED_CYCLES - _KEPT_CYCLES) * touched
        # Updates that a team adds up one after the other; of stored ones it reads the last.
        each = (min(updates, rows) if problem.reduces.is_store else updates) / teams
        # Teams share a long row, and have a short one each.
        long = (hottest / teams + _LONG_ROW) * lines
        hot = long if hottest > _LONG_ROW else hottest
        hot = 0.0 if problem.reduces.is_store else max(hot - each, 0.0)
        update = parts * (_UPDATE_CYCLES + _ELEMENT_CYCLES * work.vector)
        update += _FOUND_CYCLES if problem.fused else 0.0
        divides = problem.reduces.needs_count and "int" in problem.data_dtype
        divisions = work.vector * (1 + config["unroll"]) if divides else 0
        # Of stored updates only the last of a row is read.
        read = work.touched * work.row_bytes if problem.reduces.is_store else work.update_bytes
        moved = work.written_bytes + read
        single = _MOVE_CYCLES * moved / work.machine.multiprocessors if work.element == 1 else 0.0
        return {
            "launches": work.launches(1),
            # Elements of a byte take a thread longer than memory.
            "streams": max(
                work.streams(moved) * plan.groups / busy,
                work.cycles(single),
                contention.combining(work),
            ),
            "looks": work.cycles(ceil(work.items / threads) * _LOOK_CYCLES),
            "lists": work.cycles(max(updates, lines * hottest) * _LIST_CYCLES),
            "turns": work.cycles(parts * ceil(rows / together) * waits),
            "updates": work.cycles(each * update),
            "hot updates": work.cycles(hot * update),
            "divisions": work.cycles(divisions * _DIVISION_CYCLES),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        problem, threads = operands.problem, config["threads"]
        most = config["blocks_per_multiprocessor"] * multiprocessors(operands.target)
        plan = _Plan(problem, config["lanes"], threads, most)
        vector = widest_vector(problem)
        mean = "true" if problem.reduces.needs_count else "false"
        source, in_place = ("out", "true") if operands.data is None else ("data", "false")

        def call(width: int) -> str:
            return (
                f"owned_rows<P, {threads}, {plan.groups}, {config['lanes']}, {width}, "
                f"{config['unroll']}, {plan.ahead}, {mean}, {in_place}>"
                f"(output, {source}, updates, indices, sizes, {plan.spans}, shared);"
            )

        launch(
            operands,
            ("owned_rows",),
            by_alignment(operands, vector, call(vector), call(1)),
            plan.groups * plan.spans,
            threads,
            shared_bytes=plan.list_bytes,
            resolves_every_index=True,
            static_bytes=plan.static_bytes,
        )


def _first_knobs(problem: ScatterProblem, units: int) -> Config:
    """Values that were the fastest of 273 problems on an H200, as far as they differ from others'.

    Parameters
    ----------
    units : int
        Multiprocessors.
    """
    if problem.items.constant > _FEW_UPDATES:
        return {}
    items, rows, width = problem.items.constant, problem.destinations.constant, problem.width
    if problem.in_place:
        rows = min(rows, items)
    row_bytes = width.constant * item_bytes(problem.data_dtype)
    if width.is_one:
        fills = rows * row_bytes >= _FILLING_BYTES * units
        return {"threads": 256, "blocks_per_multiprocessor": 3, "unroll": 4 if fills else 1}
    # What is moved may take longer than what a block begins with.
    little = max(rows, items) * row_bytes < 2 * _FILLING_BYTES * units
    return {"threads": 256, "blocks_per_multiprocessor": 3} if little else {}


def _with_first(first: int | None, values: Sequence[int]) -> tuple[int, ...]:
    """Values of a knob, one of which is the default if it is among them."""
    return tuple(sorted(values, key=lambda value: value != first))


def _busy_groups(work: Work, groups: int) -> int:
    """Groups that have updates: where batches share few indices, some residues have none.

    A group has every so many-th row. Rows of one index are an extent apart, so they are in groups
    that differ by multiples of what the extent and the number of groups have in common.
    """
    problem = work.problem
    if problem.index_batch or problem.batch.is_one:
        return groups
    apart = groups // gcd(int(work.extent), groups)
    return int(max(min(groups, work.batch * work.count, work.count * apart), 1))


class _Plan:
    """How rows and their columns are shared by blocks, and the memory of a block."""

    def __init__(self, problem: ScatterProblem, lanes: int, threads: int, most: int) -> None:
        vector = widest_vector(problem)
        rows, width = problem.destinations.constant, problem.width.constant
        self.spans = max(min(ceil_div(width, lanes * vector), most), 1)
        self.groups = max(min(most // self.spans, rows), 1)
        self.rows_each = ceil_div(rows, self.groups)
        self.ahead = owned_lists.ahead(problem.items.constant, threads)
        self.list_bytes = owned_lists.shared_bytes(problem.items.constant, self.rows_each, threads)
        # A sum of each thread, and counts of the warps. The kernel has a form for tensors that are
        # not aligned as well, and memory for both.
        sums = vector + 1 if vector > 1 else 1
        self.static_bytes = threads * sums * accumulate_bytes(problem.data_dtype) + 1024
