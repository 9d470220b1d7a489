"""Launches that reduce rows, given the updates in the order of their destinations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.operands import Operands
from tvm_scatter.emit.weighted_rows import WARP, WeightedRows
from tvm_scatter.problem.reductions import HALVES, item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, at_least, at_most, ceil_div, round_up
from tvm_scatter.problem.vectors import widest_vector
from tvm_scatter.strategies.cuda.codegen.carried import MOST_BYTES
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import aligned_to, launch
from tvm_scatter.strategies.cuda.codegen.owned import carried_bytes
from tvm_scatter.strategies.cuda.codegen.source import accumulate_bytes

from . import sorting
from .column_parts import lanes_of_parts, parts_of
from .listed_rows import MOST_ROWS_EACH, even_entries, few_bytes, lanes_and_parts, rows_each

#: A piece of a long segment has two to the power of this many entries, or a few more; twice as many
#: where sums of pieces would take much memory.
_PIECE_BITS = 5
_MANY = 1 << 21
_TOGETHER = 1 << device_constant("segmented", "kTogetherBits")
_LONG_ROW_THREADS = device_constant("segmented", "kLongRowThreads")
_MOST_ROWS_OF_BLOCK = device_constant("segmented", "kMostRowsOfBlock")
_BLOCKS_OF_ROWS = device_constant("segmented", "kBlocksOfRows")
#: A block looks for long rows among so many rows at least, and among up to four times as many where
#: there would be more blocks than a GPU runs at a time.
_LEAST_ROWS_OF_BLOCK, _BLOCKS_AT_A_TIME = 64, 512
#: A segment of up to three times the mean delays nobody, if it has no more entries than this.
#: Where there is little work to share, all that have two pieces are long.
_USUAL, _MOST = 3, 256
#: Threads of a multiprocessor that must have registers where logits are sums. The compiler would
#: take 96 for each, and twice as many 16-bit floats in a vector leave room for fewer.
_SUMMING_THREADS, _SUMMING_THREADS_OF_HALVES = 1024, 768
#: Updates whose elements have so many bytes are read before anything is computed with them. Shorter
#: ones would take more registers, and 1.06 to 1.11 of the time.
_READ_FIRST_BYTES = 4
_CARRYING_THREADS = _FINDING_THREADS = 256
_KEY_BYTES = 4
#: The updates of the rows of a group of lanes, if it has several. Where rows have more, they do not
#: wait for their ranges.
_UPDATES_EACH = 12
#: As many updates are worth a launch that carries what is the same for all elements of a row: so
#: 300 000 take 0.94 to 1.0 of the time, and 249 216 of 64 columns 1.07.
_MANY_TO_CARRY = 1 << 18
_SUMS, _CARRIED, _FOUND = ("pieces", "together"), "carried", "found"
#: What kernels are instantiated with.
_COMMON = "P, Key, {lanes}, {vector_and_whole}"


def add_regions(layout: sorting.Layout, problem: ScatterProblem, sizes: Sizes) -> None:
    """Append the regions of the sums of pieces."""
    row = sizes.width * accumulate_bytes(problem.data_dtype) * (3 if problem.softmax else 1)
    piece = _piece(sizes)
    layout.add("pieces", ceil_div(sizes.items, piece) * row)
    layout.add("together", ceil_div(sizes.items, piece * _TOGETHER) * row)
    layout.add(_CARRIED, sizes.items * MOST_BYTES if _may_carry(problem, sizes) else 0)
    layout.add(_FOUND, ceil_div(sizes.items, piece) * _KEY_BYTES if problem.order_alone else 0)


def _may_carry(problem: ScatterProblem, sizes: Sizes) -> bool:
    """Whether a launch that carries something of each update may pay.

    What stands in the order already is read side by side without it.
    """
    may_be_many = not isinstance(sizes.items, int) or sizes.items >= _MANY_TO_CARRY
    return problem.fused and not problem.in_order and may_be_many


def _piece(sizes: Sizes) -> Any:
    """The fewest entries of a piece."""
    return (1 << _PIECE_BITS) * (1 + _are_many(sizes))


def _are_many(sizes: Sizes) -> Any:
    items = sizes.items
    if isinstance(items, int):
        return int(items >= _MANY)
    return tirx.Cast("int64", items >= tirx.IntImm("int64", _MANY))


@dataclass(frozen=True)
class _Shape:
    """How threads share rows.

    Attributes
    ----------
    vector : int
        The elements that a thread has at a time.
    lanes, tiles : int, int or expression
        The threads of a part of a row, which reads neighbours, and the parts of a row.
    part_lanes, parts, apart : int, int or expression, bool
        The same where updates are read, and whether all first parts come before all others.
    carries : bool
        Whether what is the same for all elements of a row is carried in the order of the list.
    """

    vector: int
    lanes: int
    tiles: Any
    part_lanes: int
    parts: Any
    apart: bool
    carries: bool

    @staticmethod
    def of(operands: Operands, may_carry: bool) -> _Shape:
        """The shape for some operands.

        Parameters
        ----------
        may_carry : bool
            Whether there are so many updates that carrying something of each may pay.
        """
        problem, sizes = operands.problem, operands.sizes
        vector, lanes, tiles = _whole_rows(operands)
        adds_up = _adds_up_logits(operands)
        # Sums of logits in 16 bits wait for other things.
        carries = may_carry and not (adds_up and problem.data_dtype in HALVES)
        carries = carries and carried_bytes(operands, vector) > 0
        part_lanes, apart = lanes, False
        # Threads of a row share its logits, or read what makes them once for each part.
        if not adds_up and (carries or not problem.softmax):
            least = _MANY_TO_CARRY if carries else 0
            side_by_side = carries or problem.in_order
            part_lanes, apart = lanes_of_parts(operands, lanes, vector, side_by_side, least)
        parts = parts_of(sizes.width, part_lanes, vector) if apart else tiles
        return _Shape(vector, lanes, tiles, part_lanes, parts, apart, carries)


def reduce_rows(
    operands: Operands,
    layout: sorting.Layout,
    lists: str,
    arguments: sorting.Arguments,
    threads: int,
) -> None:
    """Emit the launches: short rows and sums of pieces of long ones, then rows from these sums.

    Parameters
    ----------
    layout : Layout
        The layout of the workspace, with the regions of :func:`add_regions`.
    lists : str
        C++ declarations of the type ``Key``, of the sorted ``keys`` and ``items``, and of where
        the segment of each destination ``begins`` and ``ends``.
    arguments : dict
        The arguments of the declarations.
    """
    steps = _Steps(operands, layout, lists, arguments, threads)
    items = operands.sizes.items
    shape = _Shape.of(operands, _may_carry(operands.problem, operands.sizes))
    steps.find_keys()
    if isinstance(items, int) or not shape.carries:
        steps.sum_updates(shape)
    else:
        with T.If(items >= tirx.IntImm("int64", _MANY_TO_CARRY)):
            with T.Then():
                steps.sum_updates(shape)
            with T.Else():
                steps.sum_updates(_Shape.of(operands, may_carry=False))
    steps.add_pieces(shape)


@dataclass(frozen=True)
class _Steps:
    """The launches of :func:`reduce_rows`, whose arguments these are."""

    operands: Operands
    layout: sorting.Layout
    lists: str
    arguments: sorting.Arguments
    threads: int

    def find_keys(self) -> None:
        """Find the segments that slots lie in, if that takes a search."""
        if not (self._searches and self._cuts()):
            return
        text, arguments = self._declarations(carries=False)
        launch(
            self.operands,
            ("segmented",),
            f"{text}  (void)begins, (void)ends, (void)items;\n"
            f"  find_keys_of_slots<Key>({_FOUND}, keys, slots, int(bits));",
            ceil_div(self._slots, _FINDING_THREADS),
            _FINDING_THREADS,
            {**arguments, "slots": ("long long", self._slots)},
            overlaps=True,
        )

    def sum_updates(self, shape: _Shape) -> None:
        """Write rows that have short segments, and sum pieces of long ones."""
        operands, entries = self.operands, _CARRIED if shape.carries else "items"
        if shape.carries:
            self._carry()
        first = str(item_bytes(operands.problem.data_dtype) >= _READ_FIRST_BYTES).lower()
        apart = str(shape.apart).lower()
        each = self._rows_each(shape)
        groups = ceil_div(operands.sizes.destinations, each)
        self._step(
            f"sum_updates<{_COMMON}, {self._mean}, {first}, {apart}>(pieces, {self._target}, "
            f"updates, {self._keys}, begins, ends, {entries}, sizes, longest, int(bits), slots, "
            "int(rows_each), parts);",
            (self._slots + groups) * shape.parts * shape.part_lanes,
            self.threads,
            shape,
            shape.part_lanes,
            few_bytes(operands),
            more={"rows_each": each},
        )

    def add_pieces(self, shape: _Shape) -> None:
        """Write rows that have long segments from the sums of their pieces."""
        if self._cuts(_TOGETHER):
            together = ceil_div(self._items, _piece(self.operands.sizes) * _TOGETHER)
            self._step(
                f"sum_together<{_COMMON}>(together, pieces, {self._keys}, begins, ends, sizes, "
                "longest, int(bits), tiles);",
                together * shape.tiles * _LONG_ROW_THREADS,
                _LONG_ROW_THREADS,
                shape,
                shape.lanes,
            )
        if self._cuts():
            rows = self._rows_of_block
            groups = ceil_div(self.operands.sizes.destinations, rows)
            self._step(
                f"write_long<{_COMMON}, {self._mean}>(pieces, together, {self._target}, begins, "
                "ends, sizes, longest, int(bits), int(rows_of_block), groups, tiles);",
                groups * _BLOCKS_OF_ROWS * shape.tiles * _LONG_ROW_THREADS,
                _LONG_ROW_THREADS,
                shape,
                shape.lanes,
                more={"rows_of_block": rows, "groups": groups},
            )

    @property
    def _items(self) -> Any:
        return self.operands.sizes.items

    @property
    def _searches(self) -> bool:
        return self.operands.problem.order_alone

    @property
    def _keys(self) -> str:
        """The keys of entries with which slots begin."""
        return "keys_of_slots" if self._searches else "keys"

    @property
    def _bits(self) -> Any:
        return _PIECE_BITS + _are_many(self.operands.sizes)

    def _rows_each(self, shape: _Shape) -> Any:
        """The rows of a group of lanes: several where they have few updates."""
        rows = self.operands.sizes.destinations
        few = at_most(_UPDATES_EACH * rows // at_least(self._items, 1), MOST_ROWS_EACH)
        return rows_each(few, rows * shape.parts * shape.part_lanes)

    @property
    def _rows_of_block(self) -> Any:
        """The rows among which a block looks for long ones: whole warps."""
        each = ceil_div(self.operands.sizes.destinations * _BLOCKS_OF_ROWS, _BLOCKS_AT_A_TIME)
        return at_most(at_least(round_up(each, WARP), _LEAST_ROWS_OF_BLOCK), _MOST_ROWS_OF_BLOCK)

    @property
    def _mean(self) -> str:
        return str(self.operands.problem.reduces.needs_count).lower()

    @property
    def _target(self) -> str:
        return "output, out" if self.operands.data is None else "output, data"

    @property
    def _slots(self) -> Any:
        return ceil_div(self._items, _piece(self.operands.sizes)) if self._cuts() else 0

    def _cuts(self, pieces: int = 1) -> bool:
        """Whether a segment may have two pieces, or two times so many."""
        items = self._items
        return not isinstance(items, int) or items >= 2 * _piece(self.operands.sizes) * pieces

    def _declarations(self, carries: bool) -> tuple[str, sorting.Arguments]:
        """C++ declarations of the lists and of the workspace's regions, and their arguments."""
        text, regions = self.lists + "  using Wide = Accumulate<Data>;\n", [*_SUMS]
        for name in _SUMS:
            text += self.layout.pointer(name, "Wide")
        if carries:
            regions.append(_CARRIED)
            text += self.layout.pointer(_CARRIED, "P::Updates::Carried")
        if self._searches:
            regions.append(_FOUND)
            text += self.layout.pointer(_FOUND, "Key")
            text += f"  const SlotKeys<Key> keys_of_slots{{{_FOUND}, int(bits)}};\n"
            text += "  (void)keys_of_slots;\n"
        arguments = {**self.arguments, **self.layout.arguments(*regions)}
        return text, {**arguments, "bits": ("long long", self._bits)}

    def _carry(self) -> None:
        """Compute for each update once what is the same for all elements of its row."""
        text, arguments = self._declarations(carries=True)
        launch(
            self.operands,
            ("segmented",),
            f"{text}  (void)begins, (void)ends, (void)keys;\n"
            f"  carry_updates<P>({_CARRIED}, updates, items, sizes);",
            ceil_div(self._items, _CARRYING_THREADS),
            _CARRYING_THREADS,
            arguments,
            owns=True,
            overlaps=True,
        )

    def _step(
        self,
        call: str,
        work: Any,
        of: int,
        shape: _Shape,
        lanes: int,
        overlaps: bool = True,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        """Launch a templated call for so many threads, in blocks ``of`` some."""
        operands = self.operands
        text, arguments = self._declarations(shape.carries)
        text += f"""  const uint32 longest = static_cast<uint32>(
      max(min(min(usual, even), {_MOST}ll), (2ll << bits) - 1));
  (void)begins, (void)ends, (void)keys, (void)longest;
"""
        numbers = {
            "usual": _USUAL * self._items // at_least(operands.sizes.destinations, 1),
            "even": even_entries(operands.problem, operands.sizes),
            "slots": self._slots,
            "tiles": shape.tiles,
            "parts": shape.parts,
            **(more or {}),
        }
        arguments |= {name: ("long long", number) for name, number in numbers.items()}
        _launch(operands, text, arguments, call, ceil_div(work, of), of, lanes, overlaps)


def _launch(
    operands: Operands,
    text: str,
    arguments: sorting.Arguments,
    call: str,
    blocks: Any,
    threads: int,
    lanes: int,
    overlaps: bool,
) -> None:
    """Launch a templated call with vectors, or element by element if tensors are not aligned."""
    vector, _, _ = _whole_rows(operands)
    # Threads that share a logit have the same columns also where vectors are no single accesses.
    sums = _adds_up_logits(operands)
    single = f"{vector}, false" if sums else "1, true"
    tensors = ("output", "updates") if operands.data is None else ("output", "updates", "data")
    whole = call.format(lanes=lanes, vector_and_whole=f"{vector}, true")
    text += f"  if ({aligned_to(vector, *tensors)})\n    {whole}\n"
    text += f"  else\n    {call.format(lanes=lanes, vector_and_whole=single)}"
    halves = operands.problem.data_dtype in HALVES
    most = _SUMMING_THREADS_OF_HALVES if halves else _SUMMING_THREADS
    together = most // threads if sums else 0
    launch(
        operands,
        ("segmented",),
        text,
        blocks,
        threads,
        arguments,
        owns=True,
        together=together,
        overlaps=overlaps,
    )


def _adds_up_logits(operands: Operands) -> bool:
    """Whether threads of a row share logits, which are sums along its columns."""
    return operands.problem.softmax and operands.updates.term is not None


def _whole_rows(operands: Operands) -> tuple[int, int, Any]:
    """The elements that a thread has at a time, the threads of a row, and the parts of a row."""
    problem, sizes = operands.problem, operands.sizes
    vector = widest_vector(problem)
    if not problem.softmax:
        return (vector, *lanes_and_parts(problem, sizes, vector))
    weighted = WeightedRows(operands.updates, sizes.count)
    vector = weighted.vector(vector)
    if operands.updates.term is None:
        return (vector, *lanes_and_parts(problem, sizes, vector))
    threads, lanes = weighted.heads * weighted.sharing(vector), 1
    while lanes < min(threads, WARP):
        lanes *= 2
    return vector, lanes, ceil_div(threads, lanes)
