"""Grouped: lists the updates of each destination without a sort, then writes every row once."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, at_most, ceil_div
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import Terms, Work
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import launch
from tvm_scatter.strategies.cuda.codegen.source import accumulate_bytes
from tvm_scatter.strategies.cuda.steps import listed_rows
from tvm_scatter.strategies.cuda.steps.listed_rows import (
    CHUNK_THREADS,
    LEAST_CHUNK,
    LONG_LIST,
    ListedRows,
    chunk_entries,
    declare_lists,
)

from .steps import sorting, stages

_GROUP_THREADS = device_constant("grouped", "kGroupThreads")
_GROUP_TILE = device_constant("grouped", "kGroupTile")
#: The most items and places: they are counted in 32 bits.
_LIMIT = 1 << 32
_FIELDS = {
    "cursors": "uint64",
    "counts": "uint32",
    "begins": "uint32",
    "ranks": "uint32",
    "list": "uint32",
    "slots": "uint32",
    "long_lists": "LongList",
}


class Grouped(Implementation):
    """Atomic counters make the lists; a balanced reduction reads them.

    Sums are accumulated as in ``segmented``, but in the order in which the counters were reached,
    which differs from run to run.
    """

    name = "grouped"
    accumulates_wide = True
    fuses = True
    fills = True
    finishes = True
    # Measured: 46 us of 77 with uniform destinations, of which the rows of an order take back 11.
    order_cost = 0.45
    summary = "rows into as many places as there are updates or more; sizes known at run time only"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        if problem.reduces.is_store:
            return "a plain update has nothing to reduce"
        for what, size in (("updates", problem.items), ("places", problem.destinations)):
            if size.is_static and size.constant >= _LIMIT:
                return f"it counts fewer than {_LIMIT} {what}, not {size}"
        return None

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        return {"threads": (128, 256)}

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        return _layout(problem, sizes).total

    def cost(self, work: Work, config: Config) -> Terms:
        counters = 4 * work.destinations
        return {
            "launches": work.launches(6),
            **listed_rows.cost(work, listed=True),
            "items": work.streams(work.index_bytes + 16 * work.items)
            + work.sectors(work.items)
            + work.cycles(0.1 * work.hottest),
            # Counters, and entries of lists that are written wherever a place's list is.
            "misses": work.misses(work.items, counters)
            + work.misses(work.items, 4 * work.items)
            + sorting.misses_of_messages(work),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        sizes = operands.sizes
        if not operands.problem.is_static:
            with T.Assert(
                tirx.max(sizes.items, sizes.destinations) < tirx.IntImm("int64", _LIMIT),
                f"{operands.signature.operator}: at most {_LIMIT - 1} updates can be grouped",
            ):
                pass
        layout = _layout(operands.problem, sizes)
        _list_updates(operands, layout)
        _reduce(operands, layout, config["threads"])


def _layout(problem: ScatterProblem, sizes: Sizes) -> sorting.Layout:
    layout = sorting.Layout()
    layout.add("cursors", 16)
    for name in ("counts", "begins", "slots"):
        layout.add(name, sizes.destinations * 4)
    for name in ("ranks", "list"):
        layout.add(name, sizes.items * 4)
    long_lists = sizes.items // (LONG_LIST + 1)
    layout.add("long_lists", long_lists * 8)
    layout.add("sums", long_lists * sizes.width * accumulate_bytes(problem.data_dtype))
    return layout


def _groups(layout: sorting.Layout) -> tuple[str, sorting.Arguments]:
    return declare_lists(layout, "Groups", "groups", _FIELDS)


def _list_updates(operands: Operands, layout: sorting.Layout) -> None:
    problem, sizes = operands.problem, operands.sizes
    text, arguments = _groups(layout)

    clear = "  fill(cursors, uint64(0), 2);\n  fill(counts, 0u, int64(sizes.destinations()));"
    stages.stride_launch(operands, text + clear, sizes.destinations, ("grouped",), arguments)

    def blocks_of(
        body: str, blocks: Any, more: sorting.Arguments, resolves_every_index: bool = False
    ) -> None:
        launch(
            operands,
            ("grouped",),
            text + body,
            blocks,
            _GROUP_THREADS,
            {**arguments, **more},
            resolves_every_index=resolves_every_index,
        )

    tiles = ceil_div(sizes.items, _GROUP_TILE)
    blocks_of("  rank_updates<P>(groups, indices, sizes);", tiles, {}, resolves_every_index=True)
    blocks_of(
        "  begin_lists<P>(groups, sizes, static_cast<uint32>(chunk));",
        ceil_div(sizes.destinations, _GROUP_THREADS),
        {"chunk": ("long long", chunk_entries(problem, sizes))},
    )
    blocks_of("  list_updates<P>(groups, sums, indices, sizes);", tiles, {})


def _reduce(operands: Operands, layout: sorting.Layout, threads: int) -> None:
    sizes = operands.sizes
    rows = ListedRows(operands, "grouped", *_groups(layout))
    if not isinstance(sizes.items, int) or sizes.items > LONG_LIST:
        teams = ceil_div(sizes.items, LEAST_CHUNK) * rows.tiles
        rows.sum(
            "sum_long_lists<P, {lanes}, {vector}, {columns}>(sums, groups, updates, sizes, "
            "static_cast<uint32>(chunk), tiles);",
            ceil_div(at_most(teams, CHUNK_THREADS // rows.lanes) * rows.lanes, threads),
            threads,
        )
    rows.write("groups", threads)
