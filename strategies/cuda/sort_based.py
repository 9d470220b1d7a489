"""Sort-based: updates sorted by destination, then one result for each run of equal destinations.

Bitwise reproducible for every reduction, and immune to skew: see ``device/segment.cuh``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T
from tvm_scatter.strategies.cuda import stages
from tvm_scatter.strategies.cuda.launch import launch
from tvm_scatter.strategies.cuda.parallel_injective import widest_vector
from tvm_scatter.strategies.cuda.source import accumulate_bytes

from tvm_scatter.emission import Operands
from tvm_scatter.problem import ScatterProblem
from tvm_scatter.sizes import Sizes, ceil_div, round_up
from tvm_scatter.strategy import Config, Implementation

# As in device/radix_sort.cuh and device/segment.cuh.
_SORT_THREADS = 256
_SORT_TILE = 4096
_CHUNK = 32
_MAX_DIGIT_BITS = 8
_THREADS = 128
#: Ranks are 32 bits wide.
_MAX_ITEMS = 1 << 32


class SortBased(Implementation):
    """Stable radix sort of destinations, then a segmented reduction in a fixed tree."""

    name = "sort_based"
    deterministic = True
    summary = "reproducible float sums, last update wins, destinations that take very many updates"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        items = problem.items
        if items.is_static and items.constant >= _MAX_ITEMS:
            return f"it sorts fewer than {_MAX_ITEMS} updates, not {items}"
        return None

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config) -> Any:
        return _Layout(problem, sizes).total

    def emit(self, operands: Operands, config: Config) -> None:
        layout = _Layout(operands.problem, operands.sizes)
        if not operands.problem.is_static:
            with T.Assert(
                operands.sizes.items < tirx.IntImm("int64", _MAX_ITEMS),
                f"{operands.signature.operator}: sort_based takes fewer than {_MAX_ITEMS} updates",
            ):
                pass
        stages.copy_data(operands)
        if operands.problem.reduction == "update":
            _sort(operands, layout)
            _write_last(operands, layout)
            return

        def reduce_into_out() -> None:
            _sort(operands, layout)
            _reduce(operands, layout)

        if operands.problem.reduction == "mean":
            stages.around(operands, reduce_into_out, layout.offsets["counts"])
        else:
            # A run starts from its first update, so no identity needs to be written beforehand.
            reduce_into_out()


class _Layout:
    """Where things stand in the workspace, in bytes."""

    def __init__(self, problem: ScatterProblem, sizes: Sizes) -> None:
        self.wide = not problem.is_static or max(sizes.items, sizes.destinations) >= (1 << 32) - 1
        key = 8 if self.wide else 4
        tiles = ceil_div(sizes.items, _SORT_TILE)
        slots = 2 * ceil_div(sizes.items, _CHUNK)
        width = sizes.width * accumulate_bytes(problem.data_dtype)
        regions: dict[str, Any] = {
            "keys0": sizes.items * key,
            "keys1": sizes.items * key,
            "items0": sizes.items * key,
            "items1": sizes.items * key,
            "digits": tiles * (4 << _MAX_DIGIT_BITS),
            "totals": 4 << _MAX_DIGIT_BITS,
        }
        if problem.reduction != "update":
            # Levels take turns; each is a sixteenth of the one before.
            for turn in ("0", "1"):
                regions["partial_keys" + turn] = slots * key
                regions["pending" + turn] = slots
                regions["partials" + turn] = slots * width
                slots = 2 * ceil_div(slots, _CHUNK)
        if problem.reduction == "mean":
            regions["counts"] = sizes.destinations * 4
        self.offsets: dict[str, Any] = {}
        self.total: Any = 0
        for name, size in regions.items():
            self.offsets[name] = self.total
            self.total = self.total + round_up(size, 256)

    def pointer(self, name: str, kind: str) -> str:
        """A C++ declaration of a pointer to a region."""
        return f"  {kind}* const {name} = reinterpret_cast<{kind}*>(workspace + {name}_at);\n"

    def arguments(self, *names: str) -> dict[str, tuple[str, Any]]:
        """The offsets of regions, as arguments of a kernel."""
        return {f"{name}_at": ("long long", self.offsets[name]) for name in names}


_KEY = """  using Key = If<sizeof(Offset) == 4, uint32, uint64>::type;
"""


def _turns(layout: _Layout, *names: str) -> str:
    return "".join(layout.pointer(f"{name}{turn}", "Key") for name in names for turn in "01")


def _passes(operands: Operands) -> tuple[Any, int]:
    """How many passes the sort takes, and the bits of a digit."""
    places = operands.sizes.destinations
    if isinstance(places, int):
        bits = max(places.bit_length(), 1)
        passes = -(-bits // _MAX_DIGIT_BITS)
        return passes, -(-bits // passes)
    passes = tirx.IntImm("int64", 1)
    for done in range(_MAX_DIGIT_BITS, 64, _MAX_DIGIT_BITS):
        more = tirx.shift_right(places, tirx.IntImm("int64", done)) > 0
        passes = passes + tirx.Cast("int64", more)
    return passes, _MAX_DIGIT_BITS


def _sort(operands: Operands, layout: _Layout) -> None:
    passes, bits = _passes(operands)
    items = operands.sizes.items
    tiles = ceil_div(items, _SORT_TILE)
    stages.stride_launch(
        operands,
        _KEY + layout.pointer("keys0", "Key") + "  make_keys<P, Key>(keys0, indices, sizes);",
        items,
        ("radix_sort",),
        layout.arguments("keys0"),
    )
    lists = ("keys0", "keys1", "items0", "items1", "digits", "totals")
    prologue = (
        _KEY
        + _turns(layout, "keys", "items")
        + layout.pointer("digits", "uint32")
        + layout.pointer("totals", "uint32")
        + "  const bool odd = pass & 1;\n  const int shift = int(pass) * "
        + f"{bits};\n  const int64 size = sizes.items();\n"
        + "  (void)keys0, (void)keys1, (void)items0, (void)items1, (void)digits, (void)totals;\n"
        + "  (void)odd, (void)shift, (void)size;\n"
    )
    with T.serial(passes) as turn:
        arguments = {**layout.arguments(*lists), "pass": ("long long", turn)}

        def step(body: str, blocks: Any) -> None:
            launch(operands, ("radix_sort",), prologue + body, blocks, _SORT_THREADS, arguments)

        step(f"  count_digits<{bits}>(digits, odd ? keys1 : keys0, size, shift);", tiles)
        step(f"  scan_counts(digits, totals, ceil_div<int64>(size, {_SORT_TILE}));", 1 << bits)
        step(
            f"  move_to_rank<{bits}, Key>(odd ? keys0 : keys1, odd ? items0 : items1,\n"
            "      odd ? keys1 : keys0, pass == 0 ? nullptr : (odd ? items1 : items0),\n"
            "      digits, totals, size, shift);",
            tiles,
        )


def _sorted_lists(operands: Operands, layout: _Layout) -> tuple[str, dict[str, tuple[str, Any]]]:
    """Declarations of the sorted keys and items, and the arguments they need."""
    passes, _ = _passes(operands)
    text = _KEY + _turns(layout, "keys", "items")
    text += "  const Key* const keys = passes & 1 ? keys1 : keys0;\n"
    text += "  const Key* const items = passes & 1 ? items1 : items0;\n"
    arguments = layout.arguments("keys0", "keys1", "items0", "items1")
    return text, {**arguments, "passes": ("long long", passes)}


def _lanes(problem: ScatterProblem, vector: int) -> int:
    if problem.index_slice:
        return 1
    if not problem.slice.is_static:
        return 32
    lanes = 1
    while lanes * vector < problem.slice.constant and lanes < 32:
        lanes *= 2
    return lanes


def _write_last(operands: Operands, layout: _Layout) -> None:
    text, arguments = _sorted_lists(operands, layout)
    vector = widest_vector(operands.problem)
    lanes = _lanes(operands.problem, vector)
    call = "write_last<P, Key, {lanes}, {vector}>(out, updates, keys, items, sizes);"
    text += f"  if (aligned<Data, {vector}>(out) && aligned<Data, {vector}>(updates))\n    "
    text += call.format(lanes=lanes, vector=vector) + "\n  else\n    "
    text += call.format(lanes=lanes, vector=1)
    launch(
        operands,
        ("segment",),
        text,
        ceil_div(operands.sizes.items * lanes, _THREADS),
        _THREADS,
        arguments,
    )


def _reduce(operands: Operands, layout: _Layout) -> None:
    problem, sizes = operands.problem, operands.sizes
    vector = widest_vector(problem)
    lanes = _lanes(problem, vector)
    text, arguments = _sorted_lists(operands, layout)
    names = [f"{name}{turn}" for turn in "01" for name in ("partial_keys", "pending", "partials")]
    arguments |= layout.arguments(*names)
    for turn in "01":
        text += layout.pointer("partial_keys" + turn, "Key")
        text += layout.pointer("pending" + turn, "unsigned char")
        text += layout.pointer("partials" + turn, "Accumulate<Data>")
        text += f"  const Partials<P, Key> partial{turn}"
        text += f"{{partial_keys{turn}, pending{turn}, partials{turn}}};\n"

    def level(size: Any, body: str, more: dict[str, tuple[str, Any]]) -> None:
        blocks = ceil_div(ceil_div(size, _CHUNK) * lanes, _THREADS)
        launch(operands, ("segment",), text + body, blocks, _THREADS, {**arguments, **more})

    def call(vector: int, first_level: str, come: str, go: str, size: str) -> str:
        return (
            f"reduce_segments<P, Key, {lanes}, {vector}, {first_level}>(\n"
            f"      out, updates, keys, items, {come}, {go}, {size}, sizes);"
        )

    first = f"  if (aligned<Data, {vector}>(updates))\n    "
    first += call(vector, "true", "partial1", "partial0", "sizes.items()") + "\n  else\n    "
    first += call(1, "true", "partial1", "partial0", "sizes.items()")
    level(sizes.items, first, {})
    further = "  " + call(
        1, "false", "odd ? partial0 : partial1", "odd ? partial1 : partial0", "size"
    )
    for depth, size, reached in _levels(sizes.items):
        odd = "  const bool odd = " + ("true" if depth % 2 else "false") + ";\n"
        more = {"size": ("long long", size)}
        if reached is True:
            level(size, odd + further, more)
            continue
        with T.If(reached):
            with T.Then():
                level(size, odd + further, more)


def _levels(items: Any) -> Iterator[tuple[int, Any, Any]]:
    """The levels after the first: depth, entries, and whether it is reached."""
    size, depth = items, 0
    while depth < 8:
        if isinstance(size, int) and size <= _CHUNK:
            return
        reached = True if isinstance(size, int) else size > _CHUNK
        size, depth = 2 * ceil_div(size, _CHUNK), depth + 1
        yield depth, size, reached
