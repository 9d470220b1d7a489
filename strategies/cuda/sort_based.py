"""Sort-based: sorts updates by destination, then reduces each run of equal destinations.

Bitwise reproducible for every reduction, and as fast on skewed indices: see ``device/segment.cuh``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tvm.tirx.script import builder as T

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, ceil_div
from tvm_scatter.problem.vectors import widest_vector
from tvm_scatter.selection.arithmetic import larger, logarithm
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import Terms, Work
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import aligned_to, launch
from tvm_scatter.strategies.cuda.codegen.source import accumulate_bytes

from .steps import sorting, stages

_CHUNK = device_constant("segment", "kChunk")
_THREADS = 128
#: Cycles until a warp has an entry of a list: the latency of its update, about.
_ENTRY_CYCLES = 500.0
_PARTIALS = ("partial_keys", "pending", "partials")


class SortBased(Implementation):
    """A stable radix sort of destinations, then a segmented reduction in a fixed tree."""

    name = "sort_based"
    accumulates_wide = True
    deterministic = True
    fuses = True
    order_cost = 1.0
    summary = "very many plain updates of a few rows; any reduction, reproducibly"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        return sorting.refuse_too_many(problem)

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        return _layout(problem, sizes).total

    def cost(self, work: Work, config: Config) -> Terms:
        problem = work.problem
        sums = 0.0 if problem.reduces.is_store else work.items
        levels = larger(logarithm(larger(sums, 1.0)) / math.log(_CHUNK / 2), 1.0)
        written = work.touched * work.row_sectors
        threads = sums / _CHUNK * larger(work.width / work.vector, 1.0)
        # A warp adds the entries of a chunk one after the other, for some columns at a time.
        turns = larger(work.width / (32 * work.vector), 1.0) * work.turns(threads / 4096)
        entries = 1.0 if problem.reduces.is_store else _CHUNK * levels
        return {
            "launches": work.launches(
                1
                + levels
                + sorting.launches(work)
                - problem.in_place
                + stages.around_launches(work)
            ),
            "sort": sorting.time(work),
            "streams": work.streams(work.copied_bytes) + stages.around_time(work),
            "rows": work.streams(sums * larger(work.row_bytes, 32.0)),
            "sums": work.streams(sums / 4 * work.width * accumulate_bytes(problem.data_dtype)),
            "sectors": work.sectors(written, work.data_bytes),
            "misses": work.misses(written, work.data_bytes) + sorting.misses_of_messages(work),
            "columns": work.cycles(entries * _ENTRY_CYCLES * turns),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        layout = _layout(operands.problem, operands.sizes)
        reduces = operands.problem.reduces

        def reduce_into_out() -> None:
            sorting.sort(operands, layout)
            (_write_last if reduces.is_store else _reduce)(operands, layout)

        stages.copy_data(operands)
        if reduces.needs_count:
            stages.around(operands, reduce_into_out, layout.offsets["counts"])
        else:
            # A run starts from its first update, so the identity need not be written before.
            reduce_into_out()


def _layout(problem: ScatterProblem, sizes: Sizes) -> sorting.Layout:
    layout = sorting.Layout()
    sorting.add_regions(layout, problem, sizes)
    if problem.reduces.needs_count:
        layout.add("counts", sizes.destinations * 4)
    if not problem.reduces.is_store:
        # Levels use two regions in turn. Each has a sixteenth of the entries of the one before.
        slots = sizes.items
        for turn in "01":
            slots = 2 * ceil_div(slots, _CHUNK)
            layout.add("partial_keys" + turn, slots * sorting.key_bytes(problem, sizes))
            layout.add("pending" + turn, slots)
            layout.add(
                "partials" + turn, slots * sizes.width * accumulate_bytes(problem.data_dtype)
            )
    return layout


def _write_last(operands: Operands, layout: sorting.Layout) -> None:
    text, arguments = sorting.sorted_lists(operands, layout)
    vector = widest_vector(operands.problem)
    lanes = sorting.lanes_in_warp(operands.problem, vector)
    call = "write_last<P, Key, {lanes}, {vector}>(out, updates, keys, items, sizes);"
    text += f"  if ({aligned_to(vector, 'out', 'updates')})\n    "
    text += call.format(lanes=lanes, vector=vector) + "\n  else\n    "
    text += call.format(lanes=lanes, vector=1)
    blocks = ceil_div(operands.sizes.items * lanes, _THREADS)
    launch(operands, ("segment",), text, blocks, _THREADS, arguments)


def _reduce(operands: Operands, layout: sorting.Layout) -> None:
    problem, sizes = operands.problem, operands.sizes
    vector = widest_vector(problem)
    lanes = sorting.lanes_in_warp(problem, vector)
    text, arguments = sorting.sorted_lists(operands, layout)
    arguments |= layout.arguments(*(name + turn for turn in "01" for name in _PARTIALS))
    for turn in "01":
        text += layout.pointer("partial_keys" + turn, "Key")
        text += layout.pointer("pending" + turn, "unsigned char")
        text += layout.pointer("partials" + turn, "Accumulate<Data>")
        text += f"  const Partials<P, Key> partial{turn}"
        text += f"{{partial_keys{turn}, pending{turn}, partials{turn}}};\n"

    def level(size: Any, body: str, more: sorting.Arguments) -> None:
        blocks = ceil_div(ceil_div(size, _CHUNK) * lanes, _THREADS)
        launch(operands, ("segment",), text + body, blocks, _THREADS, {**arguments, **more})

    def call(vector: int, first_level: str, come: str, go: str, size: str) -> str:
        return (
            f"reduce_segments<P, Key, {lanes}, {vector}, {first_level}>(\n"
            f"      out, updates, keys, items, {come}, {go}, {size}, sizes);"
        )

    first = f"  if ({aligned_to(vector, 'updates')})\n    "
    first += call(vector, "true", "partial1", "partial0", "sizes.items()") + "\n  else\n    "
    first += call(1, "true", "partial1", "partial0", "sizes.items()")
    level(sizes.items, first, {})
    for depth, size, reached in _levels(sizes.items):
        come, go = ("partial0", "partial1") if depth % 2 else ("partial1", "partial0")
        further = "  " + call(1, "false", come, go, "size")
        more = {"size": ("long long", size)}
        if reached is True:
            level(size, further, more)
            continue
        with T.If(reached):
            with T.Then():
                level(size, further, more)


def _levels(items: Any) -> Iterator[tuple[int, Any, Any]]:
    """The levels after the first: depth, number of entries, and whether the level is needed."""
    size, depth = items, 0
    while depth < 8:
        if isinstance(size, int) and size <= _CHUNK:
            return
        reached = True if isinstance(size, int) else size > _CHUNK
        size, depth = 2 * ceil_div(size, _CHUNK), depth + 1
        yield depth, size, reached
