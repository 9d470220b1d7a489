"""Functions that put what they read into another order, in which neighbours were far apart.

Every tensor of such a function is seen as one row of elements. The place of an element in it is a
sum: of a step of each tensor along each axis of the result. Reshapes only split and join axes, so
that they are no more than other axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.sym import Analyzer

from tvm_scatter.emit.computed_updates import loads_of, substitute
from tvm_scatter.emit.expressions import all_of, is_by_index, varies
from tvm_scatter.lowering.row_reductions import reducing_blocks

from .one_block import one_block

#: Elements along an axis that are worth a tile. Where there are fewer, a line of memory that one
#: thread reads has what its neighbours read.
_FEWEST = 8


@dataclass(frozen=True)
class Access:
    """Where a tensor is read or written.

    Attributes
    ----------
    node : TensorLoad or BufferStore
        The access.
    buffer : Buffer
        The tensor.
    first : int or expression
        The place at the first value of all axes.
    steps : tuple of (int or expression)
        How far it moves along each axis.
    """

    node: Any
    buffer: Any
    first: Any
    steps: tuple[Any, ...]

    @property
    def bits(self) -> int:
        """The size of an element."""
        return int(self.buffer.dtype.bits)


@dataclass(frozen=True)
class Transposition:
    """A function whose result is written along one axis, and computed from what lies along another.

    Attributes
    ----------
    function : tvm.tirx.PrimFunc
        The function.
    value : expression
        An element of the result, over what is read.
    written : Access
        Where it is written: side by side along the last axis.
    reads : list of Access
        What it is computed from.
    sizes : list of (int or expression)
        The number of values of each axis, as few axes as describe all accesses.
    across : int
        The axis along which other tensors lie side by side.
    early : bool
        Whether the elements are computed where these are read, and not where they are written.
    """

    function: tirx.PrimFunc
    value: Any
    written: Access
    reads: list[Access]
    sizes: list[Any]
    across: int
    early: bool

    @property
    def held(self) -> Any:
        """What stands in a tile: the element, or what it is computed from."""
        return self.value if self.early else self.turned.node

    @property
    def turned(self) -> Access:
        """A tensor that lies along the other axis."""
        return next(each for each in self.reads if _is_turned(each))


def transposition_of(function: tirx.PrimFunc) -> Transposition | None:
    """A function as a transposition; ``None`` if it is none, or one of few elements to a row."""
    alone = None if reducing_blocks(function) else one_block(function)
    if alone is None:
        return None
    schedule, block = alone
    found = schedule.get(block.block_rv)
    if not block.is_injective() or not block.iters or not isinstance(found.body, tirx.BufferStore):
        return None
    store = found.body
    loads = list(loads_of(store.value))
    if not loads or any(map(is_by_index, loads)):
        return None
    axes = {each.var: each.dom for each in block.iters}
    if any(isinstance(size, int) and size == 0 for size in axes.values()):
        return None
    sizes, places = _split(axes, [store, *loads])
    accesses = [_access(each, places, sizes) for each in (store, *loads)]
    if _computes_with(store.value, axes) or None in accesses:
        return None
    merged = _merged([each for each in accesses if each is not None], list(sizes.values()))
    if merged is None:
        return None
    (written, *reads), extents = merged
    return _transposition(schedule.mod["main"], store.value, written, reads, extents)


def _transposition(
    function: tirx.PrimFunc, value: Any, written: Access, reads: list[Access], sizes: list[Any]
) -> Transposition | None:
    turned = [each for each in reads if _is_turned(each)]
    found = {_side_by_side(each) for each in turned}
    across = [each for each in found if each is not None]
    if len(found) != 1 or len(across) != 1 or not _is_one(written.steps[-1]):
        return None
    [axis] = across
    if any(isinstance(sizes[each], int) and sizes[each] < _FEWEST for each in (axis, -1)):
        return None
    early = all(_is_zero(each.steps[axis]) or _is_one(each.steps[axis]) for each in reads)
    if not early and len(turned) > 1:
        return None
    return Transposition(function, value, written, reads, sizes, axis, early)


def _is_turned(access: Access) -> bool:
    """Whether neighbours in the result are far apart in a tensor."""
    return not (_is_zero(access.steps[-1]) or _is_one(access.steps[-1]))


def _side_by_side(access: Access) -> int | None:
    """The axis along which a tensor lies side by side."""
    return next((at for at, step in enumerate(access.steps) if _is_one(step)), None)


def _computes_with(value: Any, axes: Mapping[Any, Any]) -> bool:
    """Whether an element depends on its place in another way than by what is read."""
    without = tvm_ffi.structural_map(
        value, (tvm.ir.TensorLoad, lambda load: tirx.const(0, str(load.source.dtype)))
    )
    return any(varies(without, axis) for axis in axes)


def _split(axes: Mapping[Any, Any], nodes: Sequence[Any]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """The axes, split where a reshape has joined others, and what each is of their parts."""
    analyzer = _analyzer(axes)
    cuts: dict[Any, set[int]] = {axis: {1} for axis in axes}
    for node in nodes:
        for index in map(analyzer.simplify, node.indices):
            for kind in (tirx.FloorDiv, tirx.FloorMod):
                for each in all_of(index, kind):
                    axis = next((axis for axis in axes if each.a.same_as(axis)), None)
                    if axis is not None and isinstance(each.b, tirx.IntImm):
                        cuts[axis].add(int(each.b))
    sizes: dict[Any, Any] = {}
    places: dict[Any, Any] = {}
    for axis, size in axes.items():
        steps = sorted(cuts[axis])
        if not isinstance(size, int) or not _divide(steps, size):
            steps = [1]
        place: Any = tirx.const(0, str(axis.ty.dtype))
        # The part that moves furthest stands first.
        for step, next_step in reversed(list(zip(steps, [*steps[1:], size], strict=True))):
            part = tirx.Var(axis.name, str(axis.ty.dtype))
            sizes[part] = next_step // step if isinstance(next_step, int) else next_step
            place = place + part * step
        places[axis] = place
    return sizes, places


def _divide(steps: Sequence[int], size: int) -> bool:
    return all(far % near == 0 for near, far in zip(steps, [*steps[1:], size], strict=True))


def _access(node: Any, places: Mapping[Any, Any], sizes: Mapping[Any, Any]) -> Access | None:
    """An access as a sum of steps; ``None`` if it is none."""
    buffer = node.buffer if isinstance(node, tirx.BufferStore) else node.source
    if buffer.strides or not _is_zero(buffer.elem_offset):
        return None
    indices = [tirx.Cast("int64", substitute(index, places)) for index in node.indices]
    widths = [tirx.Cast("int64", size) for size in buffer.shape]
    analyzer = _analyzer(sizes)
    # TVM finds no products of sizes in a sum. So each index is taken as a sum by itself, and all of
    # them together only where a reshape has divided them.
    sums = [_sum(index, sizes, analyzer) for index in indices]
    apart = [each for each in sums if each is not None]
    if indices and len(apart) == len(sums):
        whole = [_row_major(parts, widths) for parts in zip(*apart, strict=True)]
    else:
        whole = _sum(_row_major(indices, widths), sizes, analyzer) or []
    if not whole:
        return None
    first, *steps = (_number(analyzer.simplify(each)) for each in whole)
    return Access(node, buffer, first, tuple(steps))


def _row_major(parts: Sequence[Any], widths: Sequence[Any]) -> Any:
    """A place, or a part of one, of what it is along each axis of a tensor."""
    place: Any = tirx.const(0, "int64")
    for part, width in zip(parts, widths, strict=True):
        place = place * width + part
    return place


def _sum(index: Any, sizes: Mapping[Any, Any], analyzer: Any) -> list[Any] | None:
    """An index as its value at zero and the steps along all axes; ``None`` if it is no such sum."""
    zeros = {axis: tirx.const(0, str(axis.ty.dtype)) for axis in sizes}
    first = analyzer.simplify(substitute(index, zeros))
    steps = []
    whole = first
    for axis in sizes:
        one = substitute(index, {**zeros, axis: tirx.const(1, str(axis.ty.dtype))})
        step = analyzer.simplify(one - first)
        if isinstance(sizes[axis], int) and sizes[axis] == 1:
            step = tirx.const(0, "int64")
        steps.append(step)
        whole = whole + step * tirx.Cast("int64", axis)
    return [first, *steps] if analyzer.can_prove_equal(index, whole) else None


def _merged(
    accesses: Sequence[Access], sizes: Sequence[Any]
) -> tuple[list[Access], list[Any]] | None:
    """The accesses over as few axes as possible; ``None`` if nothing is left."""
    analyzer = Analyzer()
    kept: list[tuple[Any, list[Any]]] = []
    for at, size in enumerate(sizes):
        if isinstance(size, int) and size == 1:
            continue
        steps = [each.steps[at] for each in accesses]
        if kept and all(
            analyzer.can_prove_equal(_expression(outer), _expression(step) * _expression(size))
            for outer, step in zip(kept[-1][1], steps, strict=True)
        ):
            kept[-1] = kept[-1][0] * size, steps
        else:
            kept.append((size, steps))
    if len(kept) < 2:
        return None
    merged = [
        Access(each.node, each.buffer, each.first, tuple(steps[number] for _, steps in kept))
        for number, each in enumerate(accesses)
    ]
    return merged, [size for size, _ in kept]


def total_of(sizes: Sequence[Any]) -> int | None:
    """The product of sizes; ``None`` if it is known at run time only."""
    return prod(sizes) if all(isinstance(size, int) for size in sizes) else None


def _analyzer(sizes: Mapping[Any, Any]) -> Any:
    analyzer = Analyzer()
    for axis, size in sizes.items():
        analyzer.bind(axis, tvm.ir.Range(0, size))
    return analyzer


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, tirx.IntImm) else value


def _expression(value: Any) -> Any:
    return tirx.IntImm("int64", value) if isinstance(value, int) else tirx.Cast("int64", value)


def _is_one(value: Any) -> bool:
    return bool(isinstance(value, int | tirx.IntImm) and int(value) == 1)


def _is_zero(value: Any) -> bool:
    return value is None or (isinstance(value, int | tirx.IntImm) and int(value) == 0)
