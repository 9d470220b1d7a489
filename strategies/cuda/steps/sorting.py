"""Launches that sort the items of a problem by destination."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, ceil_div, round_up
from tvm_scatter.selection.arithmetic import choose, is_at_most
from tvm_scatter.selection.work import Work
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import launch, offset_bytes
from tvm_scatter.strategies.cuda.parallel_injective import lanes_for

from . import stages

_SORT_THREADS = device_constant("radix_sort", "kSortThreads")
_SORT_TILE = device_constant("radix_sort", "kSortTile")
_MAX_DIGIT_BITS = 9
#: Accesses to memory for a message, which waits less than an atomic addition does: 40 million of
#: eight floats take 1270 us without their order, of which the rows take 370. Fewer where an order
#: moves what names its row: 1810 us in all, or 2120 with a weight.
_NAMED_MISSES, _MOVED_MISSES = 0.45, 0.33
#: The most items: ranks have 32 bits.
MAX_ITEMS = 1 << 32
KEY = "  using Key = If<sizeof(Offset) == 4, uint32, uint64>::type;\n"

Arguments = dict[str, tuple[str, Any]]


class Layout:
    """The layout of a workspace: the offset of each region, in bytes."""

    def __init__(self) -> None:
        self.offsets: dict[str, Any] = {}
        self.total: Any = 0

    def add(self, name: str, size: Any) -> None:
        """Append a region of ``size`` bytes."""
        self.offsets[name] = self.total
        self.total = self.total + round_up(size, 256)

    def pointer(self, name: str, kind: str) -> str:
        """A C++ declaration of a pointer to a region."""
        return f"  {kind}* const {name} = reinterpret_cast<{kind}*>(workspace + {name}_at);\n"

    def arguments(self, *names: str) -> Arguments:
        """The offsets of regions, as arguments of a kernel."""
        return {f"{name}_at": ("long long", self.offsets[name]) for name in names}


def key_bytes(problem: ScatterProblem, sizes: Sizes) -> int:
    """Bytes of a key, at most: it is as wide as positions are."""
    return offset_bytes(problem, sizes)


def add_regions(layout: Layout, problem: ScatterProblem, sizes: Sizes) -> None:
    """Append the regions that the sort needs."""
    bytes_of_list = sizes.items * key_bytes(problem, sizes)
    for name in ("keys0", "keys1", "items0", "items1"):
        layout.add(name, bytes_of_list)
    layout.add("digits", ceil_div(sizes.items, _SORT_TILE) * (4 << _MAX_DIGIT_BITS))
    layout.add("totals", 4 << _MAX_DIGIT_BITS)


def refuse_too_many(problem: ScatterProblem) -> str | None:
    """Why the sort cannot take a problem: it has too many items; or ``None``."""
    items = problem.items
    if items.is_static and items.constant >= MAX_ITEMS:
        return f"it sorts fewer than {MAX_ITEMS} updates, not {items}"
    return None


def assert_not_too_many(operands: Operands) -> None:
    """Emit an assertion that the sort can take the items, if their number is not known."""
    if not operands.problem.is_static:
        with T.Assert(
            operands.sizes.items < tirx.IntImm("int64", MAX_ITEMS),
            f"{operands.signature.operator}: at most {MAX_ITEMS - 1} updates can be sorted",
        ):
            pass


def sort(operands: Operands, layout: Layout) -> None:
    """Sort the items of the problem by place; dropped updates go to the end.

    A stable radix sort over exactly the bits that the number of places needs.
    """
    assert_not_too_many(operands)
    stages.stride_launch(
        operands,
        KEY + layout.pointer("keys0", "Key") + "  make_keys<P, Key>(keys0, indices, sizes);",
        operands.sizes.items,
        ("radix_sort",),
        layout.arguments("keys0"),
        resolves_every_index=True,
    )
    order_by_keys(operands, layout, operands.sizes.destinations)


def order_by_keys(operands: Operands, layout: Layout, largest: Any, skipped_bits: int = 0) -> None:
    """Sort the items of the problem by the keys that the layout has for them.

    Parameters
    ----------
    largest : int or expression
        The largest of the keys, without its lowest ``skipped_bits``, which do not count.
    """
    passes, bits = _passes(largest)
    tiles = ceil_div(operands.sizes.items, _SORT_TILE)
    lists = ("keys0", "keys1", "items0", "items1", "digits", "totals")
    prologue = (
        KEY
        + _turns(layout, "keys", "items")
        + layout.pointer("digits", "uint32")
        + layout.pointer("totals", "uint32")
        + "  const bool odd = pass & 1;\n  const int shift = int(pass) * "
        + f"{bits} + {skipped_bits};\n  const int64 size = sizes.items();\n"
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


def launches(work: Work) -> Any:
    """The number of launches of a sort."""
    return 1 + 3 * expected_passes(work.destinations)


def time(work: Work) -> Any:
    """The microseconds of a sort beyond its launches: a pass reads the keys twice."""
    key = 4 if work.problem.is_static else 8
    moved = work.items * key * (1 + 5 * expected_passes(work.destinations))
    return work.streams(work.index_bytes + moved)


def misses_of_messages(work: Work, moved: bool = False) -> Any:
    """What messages wait for where they are read in the order of their destinations.

    The index by which a message reads its row is read so, and no cache holds that of many updates;
    or what it names is ``moved`` with them.
    """
    each = _MOVED_MISSES if moved else _NAMED_MISSES
    return work.misses(each * work.items, work.index_bytes) if work.problem.fused else 0.0


def expected_passes(largest: Any) -> Any:
    """The passes of a sort by keys, the largest of which is known."""
    passes: Any = 1.0
    for bits in range(_MAX_DIGIT_BITS, 63, _MAX_DIGIT_BITS):
        passes = passes + choose(is_at_most(float(1 << bits), largest), 1.0, 0.0)
    return passes


def sorted_lists(operands: Operands, layout: Layout, largest: Any = None) -> tuple[str, Arguments]:
    """C++ declarations of ``Key`` and of the sorted ``keys`` and ``items``, and their arguments.

    Parameters
    ----------
    largest : int or expression, optional
        That of :func:`order_by_keys`; by default what :func:`sort` has.
    """
    passes, _ = _passes(operands.sizes.destinations if largest is None else largest)
    text = KEY + _turns(layout, "keys", "items")
    text += "  const Key* const keys = passes & 1 ? keys1 : keys0;\n"
    text += "  const Key* const items = passes & 1 ? items1 : items0;\n"
    text += "  (void)keys, (void)items;\n"
    arguments = layout.arguments("keys0", "keys1", "items0", "items1")
    return text, {**arguments, "passes": ("long long", passes)}


def lanes_in_warp(problem: ScatterProblem, vector: int) -> int:
    """Threads of one warp that share a row: a power of two that covers it, or the whole warp."""
    return min(lanes_for(problem, vector), 32)


def _turns(layout: Layout, *names: str) -> str:
    return "".join(layout.pointer(f"{name}{turn}", "Key") for name in names for turn in "01")


def _passes(largest: Any) -> tuple[Any, int]:
    """The number of passes of a sort, and the bits of a digit."""
    if isinstance(largest, int):
        bits = max(largest.bit_length(), 1)
        passes = -(-bits // _MAX_DIGIT_BITS)
        return passes, -(-bits // passes)
    passes = tirx.IntImm("int64", 1)
    for done in range(_MAX_DIGIT_BITS, 63, _MAX_DIGIT_BITS):
        more = tirx.shift_right(largest, tirx.IntImm("int64", done)) > 0
        passes = passes + tirx.Cast("int64", more)
    return passes, _MAX_DIGIT_BITS
