"""How a function that computes each element from others is spread over threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import gcd, prod
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.sym import Analyzer
from tvm.tirx.buffer import is_buffer_var

from tvm_scatter.emit.computed_updates import BRANCH, function_name, loads_of, substitute
from tvm_scatter.emit.expressions import all_of, is_by_index, moves, varies
from tvm_scatter.emit.tensors import element_bytes
from tvm_scatter.lowering.row_reductions import reducing_blocks
from tvm_scatter.ops.shapes import number_of, same_size

from .choices_by_place import is_same_along
from .needless_branches import without_needless_branches
from .one_block import one_block
from .positions import divides

#: Bytes of the widest access.
_ACCESS_BYTES = 16
MOST_IN_FLIGHT = 4
#: TVM writes CUDA for vectors of these. It takes one of four booleans for 8 bytes.
_IN_VECTORS = frozenset(
    (
        *("float16", "bfloat16", "float32", "float64"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    )
)
#: Accesses that keep every thread of a large GPU busy. Where there are fewer, they are spread over
#: more threads instead of following each other in one.
FILLS_GPU = 1 << 18
#: Elements that a thread has side by side where each of them is read from a place of its own.
_MOST_OWN_READS = 4
#: Nodes of all copies of the expression that one thread computes.
MOST_NODES = 4096
#: Nodes of the expression: with twice as many, TVM takes minutes for the kernel.
_MOST_OF_ELEMENT = 768
INT32_VALUES = 1 << 31
#: A position counts on to the end of the last block.
ROUNDING = 1 << 16


@dataclass(frozen=True)
class Gathering:
    """A function of one computation that reads by index, or rows of which lie side by side.

    Attributes
    ----------
    function : tvm.tirx.PrimFunc
        The function.
    stores : list of tvm.tirx.BufferStore
        Each stores an element of a result.
    axes : list of Var
        The coordinates of the element, the last of which is the innermost loop's.
    sizes : list of (int or expression)
        The number of values of each.
    bound : list of tvm.tirx.Bind
        What several elements are computed from.
    """

    function: tirx.PrimFunc
    stores: list[tirx.BufferStore]
    axes: list[Any]
    sizes: list[Any]
    bound: list[tirx.Bind] = field(default_factory=list)

    @property
    def values(self) -> list[Any]:
        """What is computed for an element of each result, in the order in which it is computed."""
        return [each.value for each in (*self.bound, *self.stores)]

    def reads(self) -> list[Any]:
        """The reads by index."""
        return [load for load in self._loads() if is_by_index(load)]

    def along(self) -> list[Any]:
        """The reads that the innermost loop moves."""
        return [load for load in self._loads() if moves(load, self.axes[-1])]

    def _loads(self) -> list[Any]:
        return [load for value in self.values for load in loads_of(value)]


@dataclass(frozen=True)
class GatherForm:
    """How the elements of the result are spread.

    Attributes
    ----------
    lanes : int
        Elements that a thread reads, and writes, by one access.
    in_flight : int
        Accesses of a thread that do not wait for each other.
    narrow : bool
        Whether 32 bits number the accesses.
    reason : str
        Why, in one clause.
    """

    lanes: int
    in_flight: int
    narrow: bool
    reason: str

    def __str__(self) -> str:
        what = f"{self.lanes} elements" if self.lanes > 1 else "1 element"
        bits = 32 if self.narrow else 64
        return f"{what} to an access, {self.in_flight} in flight, {bits}-bit positions"


def gathering(function: tirx.PrimFunc) -> Gathering | None:
    """The one computation of a function; ``None`` if its reads are spread better by TVM."""
    result = _computation(function)
    if result is None or result.reads():
        return result
    return result if not _is_view(result) and _lanes(result)[0] > 1 else None


def dividing(function: tirx.PrimFunc) -> Gathering | None:
    """The one computation of a function that divides positions."""
    result = _computation(function)
    if result is None or _is_view(result):
        return None
    [value] = result.values
    return result if divides(value, result.axes, result.sizes) else None


def _computation(function: tirx.PrimFunc) -> Gathering | None:
    alone = None if reducing_blocks(function) else one_block(function)
    if alone is None:
        return None
    schedule, block = alone
    loops = schedule.get_loops(block.block_rv)
    found = schedule.get(block.block_rv)
    if not block.is_injective() or not block.iters or len(loops) != len(block.iters):
        return None
    if not isinstance(found.body, tirx.BufferStore):
        return None
    axes, sizes = [each.var for each in block.iters], [each.dom for each in block.iters]
    value = without_needless_branches(found.body.value, dict(zip(axes, sizes, strict=True)))
    store = tirx.BufferStore(found.body.buffer, value, found.body.indices)
    return Gathering(schedule.mod["main"], [store], axes, sizes)


def form_of(gathering: Gathering) -> GatherForm | None:
    """How a function is spread over threads; ``None`` if its result is empty, or long to compute.

    TVM takes each part of an expression apart as often as it stands there, so that nested maxima
    are twice as long with each. One element to a thread is then compiled in the time that it needs.
    """
    sizes = gathering.sizes
    if 0 in sizes:
        return None
    lanes, reason = _lanes(gathering)
    known = all(isinstance(size, int) for size in sizes)
    accesses = prod(sizes) // lanes if known else None
    in_flight = MOST_IN_FLIGHT
    if lanes > 1 and (accesses is None or not gathering.reads()):
        # Rows that lie side by side come fast, and what a thread keeps of them fills its registers.
        in_flight //= 2
    while accesses is not None and in_flight > 1 and accesses < in_flight * FILLS_GPU:
        in_flight //= 2
    nodes = [nodes_of(value) for value in gathering.values]
    while in_flight > 1 and in_flight * lanes * sum(nodes) > MOST_NODES:
        in_flight //= 2
    if max(nodes) > _MOST_OF_ELEMENT:
        return None
    narrow = accesses is not None and accesses + ROUNDING < INT32_VALUES
    return GatherForm(lanes, in_flight, narrow, reason)


def is_along(load: Any, axis: Any, lanes: int) -> bool:
    """Whether neighbours along an axis are read by one access of so many elements."""
    whole = neighbours_along(load, axis)
    return whole > 0 and whole % lanes == 0


def neighbours_along(load: Any, axis: Any) -> int:
    """So many elements, from each multiple of this number along an axis, are side by side.

    And so far from the start of what is read that one access may read them. 0 if none are.
    """
    *others, last = load.indices or [None]
    size = load.source.shape[-1] if load.indices else None
    if last is None or any(varies(each, axis) for each in others):
        return 0
    if not isinstance(size, tirx.IntImm):
        return 0
    if last.same_as(axis):
        return int(size)
    analyzer = Analyzer()
    step = analyzer.simplify(substitute(last, {axis: axis + 1}) - last)
    if not isinstance(step, tirx.IntImm) or int(step) != 1:
        return 0
    first = analyzer.modular_set(substitute(last, {axis: tirx.const(0, str(axis.ty.dtype))}))
    return gcd(int(size), int(first.coeff), int(first.base))


def has_vectors(buffer: Any) -> bool:
    """Whether TVM can read and write several elements of a buffer by one access."""
    return str(buffer.dtype) in _IN_VECTORS


def _is_view(gathering: Gathering) -> bool:
    """Whether TVM gives the same memory another shape.

    It copies the first part of a tensor, whose elements lie there in the same order, too.
    """
    if not relax.analysis.has_reshape_pattern(gathering.function):
        return False
    tensors = [each for each in gathering.function.params if is_buffer_var(each)]
    return same_size(*(number_of(each.ty.shape) for each in (tensors[0], tensors[-1])))


def _lanes(gathering: Gathering) -> tuple[int, str]:
    """How many elements of the result are written by one access each, and why."""
    written = [tirx.BufferLoad(each.buffer, each.indices) for each in gathering.stores]
    # A mask is read one by one, which others need not be for that.
    along = [load for load in gathering.along() if has_vectors(load.source)]
    # What all elements of a row share, such as its weight, is read once for all of them.
    reads = [load for load in gathering.reads() if moves(load, gathering.axes[-1])]
    accesses = [*(reads if gathering.reads() else along), *written]
    lanes, reason = lanes_of(gathering.axes[-1], gathering.sizes[-1], accesses)
    if lanes == 1 and _divides_often(gathering):
        # What is divided is divided once for several elements, each of which has its own read.
        own = [load for load in along if not is_by_index(load)]
        most, beside = lanes_of(gathering.axes[-1], gathering.sizes[-1], [*own, *written])
        lanes = gcd(most, _MOST_OWN_READS)
        reason = f"{reason}, but {beside}" if lanes > 1 else reason
    while not gathering.reads() and not all(_choose_alike(gathering, lanes)):
        lanes //= 2
    return lanes, reason


def _divides_often(gathering: Gathering) -> bool:
    """Whether positions are divided, in threads that would keep a large GPU busy four times."""
    axes, sizes = gathering.axes, gathering.sizes
    known = all(isinstance(size, int) for size in sizes)
    if not known or prod(sizes) < _MOST_OWN_READS * FILLS_GPU:
        return False
    return any(divides(value, axes, sizes) for value in gathering.values)


def _choose_alike(gathering: Gathering, lanes: int) -> Iterator[bool]:
    """Whether the elements of each access choose the same, for each choice."""
    for value in gathering.values:
        for call in all_of(value, tvm.ir.Call):
            if function_name(call) == BRANCH:
                yield is_same_along(call.args[0], gathering.axes[-1], lanes)


def lanes_of(axis: Any, size: Any, accesses: Sequence[Any]) -> tuple[int, str]:
    """How many elements along an axis are read or written by one access each, and why.

    Parameters
    ----------
    axis : Var
        The axis.
    size : int or expression
        Its number of values.
    accesses : sequence of TensorLoad
        The elements at a place along the axis.
    """
    if any(any(varies(index, axis) for index in load.indices[:-1]) for load in accesses):
        return 1, "each element has an index of its own"
    if not all(is_along(load, axis, 1) for load in accesses):
        return 1, "neighbours in the result are not known to be neighbours in what is read"
    if not isinstance(size, int):
        return 1, "the size of a row is known at run time only"
    if not all(has_vectors(load.source) for load in accesses):
        return 1, "TVM has no vectors of this type"
    widest = max(element_bytes(load.source) for load in accesses)
    rows = gcd(size, *(neighbours_along(load, axis) for load in accesses))
    lanes = gcd(rows, max(_ACCESS_BYTES // widest, 1))
    return lanes, f"rows of {size} elements lie side by side"


def nodes_of(expression: Any) -> int:
    """The length of an expression, in nodes."""
    return len(all_of(expression, tvm.ir.Expr))
