"""Common index: orders an index once for all lines that share it, then writes every line once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, ceil_div
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.selection.arithmetic import choose, is_at_most, larger, smaller
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import Terms, Work
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import launch

from .ordering import emit_order, order_workspace
from .steps import sorting
from .steps.order_forms import OrderedLists

_THREADS = device_constant("common_index", "kPlaceThreads")
_SECTOR = 32
#: Launches of the order by buckets, and the bytes that are moved in the time that an entry takes
#: there: on an H200 23 us for a million, because ranks wait for each other.
_ORDER_LAUNCHES, _BYTES_OF_ENTRY = 4, 96
#: Estimates: how much faster the cache delivers sectors than memory does; cycles of a
#: multiprocessor for each value that it adds up, and of a block for each of a hot place.
_CACHE_GAIN, _CYCLES_EACH, _CYCLES_OF_HOT = 1.5, 0.25, 0.7
#: Cycles of a multiprocessor for each block, however little it does; for a division of integers.
_BLOCK_CYCLES, _DIVIDE_CYCLES = 400.0, 7.0
#: Cycles of a block that has places with many entries for each of its places, and for each such
#: place; the share of them that a block takes where others run beside it.
_LOOK_CYCLES, _LONG_CYCLES, _TOGETHER = 100.0, 600.0, 0.3
#: Cycles for an entry of each thread of a block, and for each sector that a thread reads for it; so
#: many times longer memory takes than the cache; blocks at a time on a multiprocessor.
_TURN_CYCLES, _SECTOR_CYCLES, _MISS_LATENCIES, _RESIDENT = 500.0, 250.0, 4.0, 4.0
#: Cycles for the rank of an entry of a hot place.
_RANK_CYCLES = 10.0
_LONG_RUN = device_constant("common_index", "kLongRun")


class CommonIndex(Implementation):
    """An order of the index serves all lines. A thread reduces one place in several lines.

    A sum adds up the updates of a place in the order of the index, or, where there are many, in a
    tree of fixed form. So it has the same bits on every run.
    """

    name = "common_index"
    accumulates_wide = True
    deterministic = True
    fuses = True
    fills = True
    finishes = True
    summary = "many lines that share one index, such as the channels of an image"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        if problem.reduces.is_store:
            return "a plain update has nothing to reduce"
        if problem.batch.is_one:
            return "there is one batch"
        if not problem.shares_index:
            return "the index is not the same for all batches"
        return sorting.refuse_too_many(_line(problem))

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        # So many values of a thread are on their way; a hot place has a block for so many lines.
        return {"lines": (8, 4) if item_bytes(problem.data_dtype) > 4 else (8, 16, 4)}

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        return _layout(problem, sizes, target).total

    def cost(self, work: Work, config: Config) -> Terms:
        lines = work.batch * work.width
        # The cache holds the lines of a turn, but each entry may read a sector of its own, unless a
        # multiprocessor holds the lines of a block.
        held = work.count * work.element * config["lines"]
        alone = larger(float(work.element), _SECTOR / _CACHE_GAIN)
        # Half of what blocks can share, which is the same memory.
        own_cache = work.machine.shared_bytes / 2.0
        read = choose(is_at_most(held, own_cache), float(work.element), alone)
        # Blocks that run at a time have so many lines; what these have must fit the cache.
        blocks = work.machine.multiprocessors * work.machine.threads / _THREADS
        together = larger(blocks / larger(work.extent / _THREADS, 1.0), 1.0) * config["lines"]
        held_at_a_time = work.count * work.element * smaller(together, lines)
        apart = smaller(work.width, _SECTOR / work.element)
        added = work.items * work.width + work.data_size
        divides = work.problem.reduces.needs_count and "int" in work.problem.data_dtype
        divided = _DIVIDE_CYCLES * work.data_size if divides else 0.0
        places = smaller(work.extent, float(_THREADS))
        shares = larger(lines / config["lines"], 1.0) / work.machine.multiprocessors
        # Places of a block whose runs are long: all where updates are many.
        many = choose(is_at_most(work.count, _LONG_RUN * work.extent), 0.0, places)
        long = larger(smaller(work.hottest / _LONG_RUN, places), many)
        # Few places are ordered in one block, where ranks wait for each other.
        few = choose(is_at_most(work.extent, _THREADS), smaller(work.extent - 1.0, 1.0), 0.0)
        listed = 4 * (work.count + 2 * work.extent) * lines / config["lines"]
        # Few lines and places have few blocks, and each reads its entries one after the other.
        groups = larger(work.extent / _THREADS, 1.0)
        turns = work.count / groups / _THREADS * larger(shares * groups / _RESIDENT, 1.0)
        near = smaller(work.width, float(config["lines"]))
        sectors = config["lines"] / near * larger(near * work.element / _SECTOR, 1.0)
        missed = 1.0 + _MISS_LATENCIES * work.missed(held_at_a_time)
        return {
            "launches": work.launches(_ORDER_LAUNCHES + 1),
            # The order is made once, and read by the blocks of all lines.
            "streams": work.streams(work.index_bytes + _BYTES_OF_ENTRY * work.count + listed)
            + work.streams(work.written_bytes * apart),
            "values": work.streams(work.items * work.width * read)
            + work.misses(work.items * work.width, held_at_a_time),
            "turns": work.cycles(turns * (_TURN_CYCLES + _SECTOR_CYCLES * sectors * missed)),
            "sums": work.cycles((_CYCLES_EACH * added + divided) / work.machine.multiprocessors),
            "blocks": work.cycles(_BLOCK_CYCLES * shares * groups),
            "long runs": choose(
                is_at_most(work.hottest, _LONG_RUN),
                0.0,
                work.cycles(
                    (_LOOK_CYCLES * places + _LONG_CYCLES * long) * larger(_TOGETHER * shares, 1.0)
                ),
            ),
            # The ranks of its entries wait for each other, then its block adds them up.
            "hot place": work.cycles(
                work.hottest
                * (
                    few * _RANK_CYCLES
                    + _CYCLES_OF_HOT * config["lines"] * larger(_TOGETHER * shares, 1.0)
                )
            ),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        problem, sizes = operands.problem, operands.sizes
        line = replace(operands, problem=_line(problem), sizes=_line_sizes(sizes))
        layout = _layout(problem, sizes, operands.target)
        lists = OrderedLists(
            "permutation",
            "offsets",
            layout.pointer("permutation", "int") + layout.pointer("offsets", "int"),
            layout.arguments("permutation", "offsets"),
        )
        sorting.assert_not_too_many(line)
        emit_order(line, lists)
        _reduce(operands, lists, config["lines"])


def _line(problem: ScatterProblem) -> ScatterProblem:
    """The problem with the first line alone: its index is that of all."""
    return replace(problem, batch=SymbolicSize())


def _line_sizes(sizes: Sizes) -> Sizes:
    return replace(
        sizes,
        batch=1,
        items=sizes.count,
        destinations=sizes.extent,
        data_size=sizes.slab,
        update_size=sizes.count * sizes.slice,
    )


def _layout(problem: ScatterProblem, sizes: Sizes, target: Any) -> sorting.Layout:
    layout = sorting.Layout()
    layout.add("order", order_workspace(_line(problem), _line_sizes(sizes), target))
    layout.add("permutation", sizes.count * 4)
    layout.add("offsets", (sizes.extent + 1) * 4)
    return layout


def _reduce(operands: Operands, lists: OrderedLists, most: int) -> None:
    """Reduce all lines, as many by a thread as ``most`` says."""
    problem, sizes = operands.problem, operands.sizes
    groups = ceil_div(sizes.extent, _THREADS)
    lines = sizes.batch * sizes.slice
    whole = "true" if problem.is_static and lines % most == 0 else "false"
    mean = "true" if problem.reduces.needs_count else "false"
    source = "out" if operands.data is None else "data"
    launch(
        operands,
        ("common_index",),
        f"{lists.declarations}  reduce_lines<P, {most}, {whole}, {mean}>(output, {source}, "
        f"{lists.permutation}, {lists.offsets}, updates, sizes, groups);",
        groups * ceil_div(lines, most),
        _THREADS,
        {**lists.arguments, "groups": ("long long", groups)},
    )
