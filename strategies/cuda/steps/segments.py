"""Launches that reduce rows, given the updates in the order of their destinations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx

from tvm_scatter.emit.first_of import emit_first
from tvm_scatter.emit.operands import Operands
from tvm_scatter.emit.weighted_rows import WARP, WeightedRows
from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.reductions import HALVES, item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, at_least, ceil_div, power_of_two
from tvm_scatter.problem.vectors import widest_vector
from tvm_scatter.strategies.cuda.codegen.carried import MOST_BYTES
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import by_alignment, launch
from tvm_scatter.strategies.cuda.codegen.owned import carried_bytes
from tvm_scatter.strategies.cuda.codegen.source import accumulate_bytes

from . import sorting
from .column_parts import LEAST_COLUMNS, columns_each, lanes_of_parts, most_parts, parts_of
from .listed_rows import even_entries, few_bytes, lanes_and_parts, shares_of_rows

#: A piece of a long segment has two to the power of this many entries, or a few more: twice as many
#: where sums of pieces would take much memory, and half as many where there is little work to share
#: and pieces delay their row.
_PIECE_BITS = 6
_MANY, _FEW = 1 << 21, 1 << 19
_TOGETHER = 1 << device_constant("segmented", "kTogetherBits")
#: How often sums are added up together, at most: more often than the 32 bits of a slot need.
_MOST_TIMES = 16
#: A segment of up to three times the mean delays nobody, if it has no more entries than this.
#: Where there is little work to share, all that have a piece are long: pieces come first, and who
#: begins late with a row of 127 entries is what all wait for.
_USUAL, _MOST = 3, 256
#: Threads of a multiprocessor that must have registers where there are logits or 16-bit floats:
#: whoever adds up sums of pieces would take more than whoever waits for rows. Where logits are
#: sums, vectors of 16-bit floats have twice as many elements, and leave room for fewer.
_SOFTMAX_THREADS, _SUMMING_THREADS_OF_HALVES, _THREADS_OF_HALVES = 1024, 768, 1280
#: The fewest threads of a row with which its launch begins while the one before it ends. Fewer read
#: as many lists at a time as the first cache holds, and begun so they have what is left of it: of
#: skewed destinations, single elements take 1.25 to 1.75 of the time by it.
_LEAST_OVERLAPPING = 8
#: Updates whose elements have so many bytes are read before anything is computed with them. Shorter
#: ones would take more registers, and 1.06 to 1.11 of the time.
_READ_FIRST_BYTES = 4
_BEGINNING_THREADS = 256
_KEY_BYTES = _COUNT_BYTES = 4
#: A group of lanes has up to four rows with so many updates, as long as there are so many threads.
#: Where rows have more, they do not wait for their ranges, and registers are worth more. Means of
#: float32 of three updates take 1.11 of the time with four rows (0.96 where some have many).
_MOST_ROWS_EACH, _UPDATES_EACH, _ENOUGH_THREADS = 4, 12, 1 << 16
#: As many updates are worth a launch that carries what is the same for all elements of a row: so
#: 300 000 take 0.94 to 1.0 of the time, and 249 216 of 64 columns 1.07.
_MANY_TO_CARRY = 1 << 18
_SUMS, _ARRIVED, _FOUND = "sums", "arrived", "found"
#: The region of what is carried of each update, in their order.
CARRIED = "carried"
#: The destination of an update, behind C++ declarations of the ``items`` of an order.
KEYS_BY_INDEX = (
    "  const OrderedKeys<P, decltype(items)> keys{indices, items, sizes};\n  (void)keys;\n"
)


def ranges(offsets: str) -> str:
    """C++ declarations of ``Key``, and of where segments begin and end, given the offsets."""
    return (
        f"  using Key = int;\n  const Key* const begins = {offsets};\n"
        "  const Key* const ends = begins + 1;\n"
    )


def add_regions(layout: sorting.Layout, problem: ScatterProblem, sizes: Sizes) -> None:
    """Append the regions of the sums of pieces."""
    row = sizes.width * accumulate_bytes(problem.data_dtype) * (3 if problem.softmax else 1)
    slots = _most_slots(sizes)
    layout.add(_SUMS, _all_slots(slots) * row)
    layout.add(_ARRIVED, _all_slots(slots) * most_parts(sizes.width) * _COUNT_BYTES)
    layout.add(CARRIED, sizes.items * MOST_BYTES if _may_carry(problem, sizes) else 0)
    layout.add(_FOUND, slots * _KEY_BYTES if problem.order_alone else 0)


def _may_carry(problem: ScatterProblem, sizes: Sizes) -> bool:
    """Whether a launch that carries something of each update may pay.

    What stands in the order already is read side by side without it.
    """
    may_be_many = not isinstance(sizes.items, int) or sizes.items >= _MANY_TO_CARRY
    return problem.fused and not problem.in_order and may_be_many


def _piece_bits(sizes: Sizes, delays: bool) -> Any:
    """The logarithm of the fewest entries of a piece."""
    bits = _PIECE_BITS + _holds(sizes.items >= _MANY)
    return bits - _holds(sizes.items < _FEW) if delays else bits


def _delays(operands: Operands) -> bool:
    """Whether a long row is ready later than the short ones, as long as there is little work.

    So it is where logits are sums, and of 16-bit sums whose updates are read one by one. Smaller
    pieces take 0.89 of the time there, of others 1.0 to 1.06.
    """
    problem = operands.problem
    if problem.softmax:
        return _adds_up_logits(operands)
    return problem.data_dtype in HALVES and not problem.in_order


def _most_slots(sizes: Sizes) -> Any:
    """The most slots of pieces: none has fewer entries than a slot."""
    return ceil_div(sizes.items, power_of_two(_piece_bits(sizes, delays=True)))


def _all_slots(slots: Any) -> Any:
    """Those of pieces, of some pieces together, of some of these, and so on up to the last one."""
    # Each time they become fewer by this factor, rounded up.
    return slots + ceil_div(slots, _TOGETHER - 1) + _MOST_TIMES


def _holds(condition: Any) -> Any:
    """1 if a condition holds, else 0."""
    return int(condition) if isinstance(condition, bool) else tirx.Cast("int64", condition)


@dataclass(frozen=True)
class _Shape:
    """How threads share rows.

    Attributes
    ----------
    vector, columns : int
        The elements of an access, and the accesses of a thread to a part of a row.
    lanes, parts, apart : int, int or expression, bool
        The threads of a part of a row, which reads neighbours, the parts of a row, and whether all
        first parts come before all others.
    carries : bool
        Whether what is the same for all elements of a row is carried in the order of the list.
    """

    vector: int
    columns: int
    lanes: int
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
        vector, lanes, parts = whole_rows(operands)
        columns = _columns(operands)
        each = vector * columns
        # Sums of logits in 16 bits wait for other things.
        carries = may_carry and not _adds_up_halves(operands)
        carries = carries and carried_bytes(operands, vector) > 0
        apart = False
        # Threads of a row share its logits, or read what makes them once for each part.
        if not _adds_up_logits(operands) and (carries or not problem.softmax):
            least = _MANY_TO_CARRY if carries else 0
            side_by_side = carries or problem.in_order
            lanes, apart = lanes_of_parts(operands, lanes, each, side_by_side, least)
        if apart:
            parts = parts_of(sizes.width, lanes, each)
        return _Shape(vector, columns, lanes, parts, apart, carries)


def carries(operands: Operands) -> bool:
    """Whether something of each update is carried in the order of the lists, of static sizes."""
    return _Shape.of(operands, _may_carry(operands.problem, operands.sizes)).carries


def reduce_rows(
    operands: Operands,
    layout: sorting.Layout,
    lists: str,
    arguments: sorting.Arguments,
    threads: int,
    carried: bool = False,
) -> None:
    """Emit the launches: what is found for all rows, and then the rows.

    Parameters
    ----------
    layout : Layout
        The layout of the workspace, with the regions of :func:`add_regions`.
    lists : str
        C++ declarations of the type ``Key``, of the sorted ``keys`` and ``items``, and of where
        the segment of each destination ``begins`` and ``ends``.
    arguments : dict
        The arguments of the declarations.
    carried : bool
        Whether what is carried stands in its region already.
    """
    steps = _Steps(operands, layout, lists, arguments, threads, carried)
    items = operands.sizes.items
    shape = _Shape.of(operands, _may_carry(operands.problem, operands.sizes))
    if isinstance(items, int) or not shape.carries:
        steps.sum_updates(shape)
        return
    many = items >= tirx.IntImm("int64", _MANY_TO_CARRY)
    few = partial(steps.sum_updates, _Shape.of(operands, may_carry=False))
    emit_first([(many, partial(steps.sum_updates, shape))], few)


@dataclass(frozen=True)
class _Steps:
    """The launches of :func:`reduce_rows`, whose arguments these are."""

    operands: Operands
    layout: sorting.Layout
    lists: str
    arguments: sorting.Arguments
    threads: int
    carried: bool

    def sum_updates(self, shape: _Shape) -> None:
        """Write the rows."""
        operands, entries = self.operands, CARRIED if shape.carries else "items"
        self._begin(shape)
        first = str(reads_first(operands.problem)).lower()
        apart = str(shape.apart).lower()
        each = self._rows_each(shape)
        groups = ceil_div(operands.sizes.destinations, each)
        text, arguments = self._declarations(shape)
        text += f"""  const uint32 longest = static_cast<uint32>(
      max(min(min(usual, even), {_MOST}ll), (1ll << bits) - 1));
  const PieceSums<P> ready{{{_SUMS}, {_ARRIVED}, uint32(slots)}};
  (void)begins, (void)ends, (void)keys;
"""
        numbers = {
            "usual": _USUAL * self._items // at_least(operands.sizes.destinations, 1),
            "even": even_entries(operands.problem, operands.sizes),
        }
        arguments |= {name: ("long long", number) for name, number in numbers.items()}
        keys = "keys_of_slots" if self._searches else "keys"
        known = f"ready, {self._target}, updates, {keys}, begins, ends, {entries}, sizes, longest"
        access, last = f"P, Key, {shape.lanes}, {{vector}}", f"{{whole}}, {self._mean}, {first}"
        shaped = f"{access}, {shape.columns}, {last}, {apart}, {each}"
        call = f"sum_updates<{shaped}>({known}, int(bits), parts);"
        if self._shares_rows(shape):
            usual = "min(uint32(max(usual, static_cast<long long>(kLeastShared))), longest)"
            shaped = f"{access}, {last}, {each}, {self.threads}"
            call = f"sum_and_share<{shaped}>({known}, {usual}, int(bits));"
        _launch(
            operands,
            text,
            arguments,
            call,
            ceil_div((self._slots + groups) * shape.parts * shape.lanes, self.threads),
            self.threads,
            overlaps=shape.lanes >= _LEAST_OVERLAPPING and few_bytes(operands),
        )

    @property
    def _items(self) -> Any:
        return self.operands.sizes.items

    @property
    def _searches(self) -> bool:
        return self.operands.problem.order_alone

    @property
    def _bits(self) -> Any:
        return _piece_bits(self.operands.sizes, _delays(self.operands))

    def _rows_each(self, shape: _Shape) -> int:
        """The rows of a group of lanes: several where they have few updates."""
        rows, items = self.operands.sizes.destinations, self._items
        threads = rows * shape.parts * shape.lanes
        if not isinstance(threads, int) or not isinstance(items, int):
            return 1
        if self.operands.problem.reduces.needs_count and reads_first(self.operands.problem):
            return 1
        few = _UPDATES_EACH * rows // max(items, 1)
        return max(min(few, threads // _ENOUGH_THREADS, _MOST_ROWS_EACH), 1)

    def _shares_rows(self, shape: _Shape) -> bool:
        """Whether the groups of a block share its rows with many updates.

        It takes 0.87 to 0.99 of the time where destinations are skewed, but 1.02 where rows have
        many updates anyway, and where logits are sums of 16-bit floats.
        """
        problem = self.operands.problem
        one_part = isinstance(shape.parts, int) and shape.parts == 1 and not shape.apart
        few = self._rows_each(shape) > 1
        return problem.softmax and few and one_part and not _adds_up_halves(self.operands)

    @property
    def _mean(self) -> str:
        return str(self.operands.problem.reduces.needs_count).lower()

    @property
    def _target(self) -> str:
        return "output, out" if self.operands.data is None else "output, data"

    @property
    def _slots(self) -> Any:
        if not self._cuts:
            return 0
        return ceil_div(self._items, power_of_two(self._bits))

    @property
    def _cuts(self) -> bool:
        """Whether a segment may have a piece."""
        items = self._items
        return not isinstance(items, int) or items >= 1 << self._bits

    def _declarations(self, shape: _Shape) -> tuple[str, sorting.Arguments]:
        """C++ declarations of the lists and of the workspace's regions, and their arguments."""
        kinds = {_SUMS: "Wide", _ARRIVED: "uint32"}
        if shape.carries:
            kinds[CARRIED] = "P::Updates::Carried"
        if self._searches:
            kinds[_FOUND] = "Key"
        text = self.lists + "  using Wide = Accumulate<Data>;\n"
        text += "".join(self.layout.pointer(name, kind) for name, kind in kinds.items())
        if self._searches:
            text += f"  const SlotKeys<Key> keys_of_slots{{{_FOUND}, int(bits)}};\n"
            text += "  (void)keys_of_slots;\n"
        numbers = {"bits": self._bits, "slots": self._slots, "parts": shape.parts}
        arguments = {**self.arguments, **self.layout.arguments(*kinds)}
        return text, arguments | {name: ("long long", each) for name, each in numbers.items()}

    def _begin(self, shape: _Shape) -> None:
        """Set counters to zero, and find what rows need of slots and of each update."""
        calls, work = [], self._slots
        if self._cuts:
            _check_parts(shape, self.operands.sizes.width)
            calls.append(f"fill({_ARRIVED}, 0u, counters);")
            if self._searches:
                calls.append(f"find_keys_of_slots<Key>({_FOUND}, keys, slots, int(bits));")
        if shape.carries and not self.carried:
            calls.append(f"carry_updates<P>({CARRIED}, updates, items, sizes);")
            work = self._items
        if not calls:
            return
        text, arguments = self._declarations(shape)
        text += "  (void)begins, (void)ends, (void)keys, (void)items;\n"
        launch(
            self.operands,
            ("segmented",),
            text + "".join(f"  {call}\n" for call in calls),
            ceil_div(work, _BEGINNING_THREADS),
            _BEGINNING_THREADS,
            {**arguments, "counters": ("long long", _all_slots(self._slots) * shape.parts)},
            owns=True,
            overlaps=True,
        )


def _check_parts(shape: _Shape, width: Any) -> None:
    """Check that there is a counter for each part of a row."""
    most = most_parts(width)
    if isinstance(shape.parts, int) and isinstance(most, int):
        enough = shape.parts <= most
    else:
        enough = shape.lanes * shape.vector * shape.columns >= LEAST_COLUMNS
    if not enough:
        raise ScatterError(
            f"scatter: a row of {width} elements has {shape.parts} parts, and there are "
            f"counters for {most}."
        )


def _launch(
    operands: Operands,
    text: str,
    arguments: sorting.Arguments,
    call: str,
    blocks: Any,
    threads: int,
    overlaps: bool,
) -> None:
    """Launch a templated call with vectors, or element by element if tensors are not aligned."""
    vector, _, _ = whole_rows(operands)
    single, whole = form_of_unaligned(operands, vector)
    forms = [
        call.format(vector=size, whole=str(each).lower())
        for size, each in ((vector, True), (single, whole))
    ]
    text += by_alignment(operands, vector, *forms)
    launch(
        operands,
        ("segmented", "shared_rows"),
        text,
        blocks,
        threads,
        arguments,
        owns=True,
        together=_threads_together(operands) // threads,
        overlaps=overlaps,
    )


def form_of_unaligned(operands: Operands, vector: int) -> tuple[int, bool]:
    """The elements that a thread has at a time, and whether they are one access."""
    # Threads that share a logit have the same columns also where vectors are no single accesses.
    return (vector, False) if _adds_up_logits(operands) else (1, True)


def reads_first(problem: ScatterProblem) -> bool:
    """Whether updates are read before anything is computed with them."""
    return item_bytes(problem.data_dtype) >= _READ_FIRST_BYTES


def _threads_together(operands: Operands) -> int:
    """Threads of a multiprocessor that must have registers; 0 leaves that to NVIDIA's compiler."""
    if not operands.problem.softmax:
        bounded = operands.problem.data_dtype in HALVES and _columns(operands) == 1
        return _THREADS_OF_HALVES if bounded else 0
    return _SUMMING_THREADS_OF_HALVES if _adds_up_halves(operands) else _SOFTMAX_THREADS


def _adds_up_logits(operands: Operands) -> bool:
    """Whether threads of a row share logits, which are sums along its columns."""
    return operands.problem.softmax and operands.updates.term is not None


def _adds_up_halves(operands: Operands) -> bool:
    """Whether these logits have 16 bits."""
    return _adds_up_logits(operands) and operands.problem.data_dtype in HALVES


def _columns(operands: Operands) -> int:
    """The vectors of a row that each thread has."""
    problem = operands.problem
    if problem.softmax:
        return 1
    return columns_each(problem, operands.sizes.width, widest_vector(problem))


def whole_rows(operands: Operands) -> tuple[int, int, Any]:
    """The elements of an access, the threads of a row, and the parts of a row."""
    problem, sizes = operands.problem, operands.sizes
    vector = widest_vector(problem)
    if not problem.softmax:
        return (vector, *shares_of_rows(problem, sizes))
    weighted = WeightedRows(operands.updates, sizes.count)
    vector = weighted.vector(vector)
    if operands.updates.term is None:
        return (vector, *lanes_and_parts(problem, sizes, vector))
    threads, lanes = weighted.heads * weighted.sharing(vector), 1
    while lanes < min(threads, WARP):
        lanes *= 2
    return vector, lanes, ceil_div(threads, lanes)
