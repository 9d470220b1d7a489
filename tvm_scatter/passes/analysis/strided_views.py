"""Which elements of a tensor in memory a tensor has that only moves, widens and scales them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import mul
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.sym import Analyzer

from tvm_scatter.lowering.inlined import RESHAPES
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.shapes import is_one, plain_shape, same_shape, same_size
from tvm_scatter.passes.analysis.created import uniform_number
from tvm_scatter.problem.reductions import HALVES

#: Elements of sixteen bytes: what is copied at once.
_TOGETHER = 8


@dataclass(frozen=True)
class Axis:
    """An axis of a view.

    Attributes
    ----------
    size : int or expression
        Its places.
    stride : int or expression
        Elements from one to the next.
    shared : int or expression
        How many places that follow each other are the same.
    """

    size: Any
    stride: Any
    shared: Any = 1


@dataclass(frozen=True)
class View:
    """A tensor as elements of another one.

    Attributes
    ----------
    source : relax.Expr
        The tensor in memory, of 16-bit floats.
    axes : tuple of Axis
        The axes of the view.
    begin : int or expression
        The first element.
    factor : float
        What each element is multiplied by, in single precision.
    """

    source: Any
    axes: tuple[Axis, ...]
    begin: Any = 0
    factor: float = 1.0

    @property
    def shape(self) -> list[Any]:
        return [axis.size for axis in self.axes]

    def permuted(self, order: Sequence[int]) -> View:
        return replace(self, axes=tuple(self.axes[at] for at in order))

    def broadcast(self, shape: Sequence[Any]) -> View:
        """The view with the axes of a shape that its own broadcasts to."""
        missing = len(shape) - len(self.axes)
        axes = [Axis(1, 0)] * missing + list(self.axes)
        wide = (
            axis if same_size(axis.size, size) else Axis(size, 0)
            for axis, size in zip(axes, shape, strict=True)
        )
        return replace(self, axes=tuple(wide))

    def reshaped(self, shape: Sequence[Any]) -> View | None:
        """The view with its elements in another shape; ``None`` if that has no strides."""
        if same_shape(self.shape, list(shape)):
            return self
        left = [axis for axis in self.axes if not is_one(axis.size)]
        sizes = [size for size in shape if not is_one(size)]
        found: list[Axis] = []
        while left and sizes:
            counts = _first_group([axis.size for axis in left], sizes)
            if counts is None:
                return None
            inner, outer = counts
            axes = _regrouped(left[:inner], sizes[:outer])
            if axes is None:
                return None
            found += axes
            left, sizes = left[inner:], sizes[outer:]
        if left or sizes:
            return None
        others = iter(found)
        axes = [Axis(1, 0) if is_one(size) else next(others) for size in shape]
        return replace(self, axes=tuple(axes))

    def memory_order(self, sizes: Sequence[Any]) -> tuple[int, ...] | None:
        """The order of the axes of a tensor of some sizes in which the view has its elements.

        ``None`` if these are not all elements of the source, which has these sizes.
        """
        axes = [axis for axis in self.axes if not is_one(axis.size)]
        if len(axes) < 2 or _follow(axes):
            whole = same_size(_product([axis.size for axis in axes]), _product(sizes))
            return tuple(range(len(sizes))) if whole else None
        known = _contiguous(sizes)
        found = [at for at, axis in enumerate(known) if is_one(axis.size)]
        for axis in axes:
            at = next((at for at, each in enumerate(known) if _same_axis(axis, each)), None)
            if at is None or at in found:
                return None
            found.append(at)
        return tuple(found) if len(found) == len(sizes) else None

    @property
    def lies_in_rows(self) -> bool:
        """Whether the elements of the last axis lie side by side, and vectors of them together."""
        *outer, last = self.axes
        steps = [self.begin, *(axis.stride for axis in outer)]
        single = [last.stride, last.shared, outer[-1].shared if outer else 1]
        return all(map(is_one, single)) and all(map(_is_whole, steps))


class StridedViews:
    """Finds views.

    Parameters
    ----------
    values : mapping
        The expression that each variable is bound to.
    """

    def __init__(self, values: Mapping[Any, Any]) -> None:
        self._values = values

    def of(self, tensor: Any, shape: Sequence[Any] | None = None) -> View | None:
        """A tensor, in another shape if one is given, as elements of one of 16-bit floats.

        ``None`` if there is no such tensor.
        """
        own = plain_shape(tensor)
        if own is None:
            return None
        shape = own if shape is None else shape
        moved = self._moved(tensor, self._values.get(tensor), own, shape)
        if moved is not None and _is_usable(moved):
            return moved
        if str(tensor.ty.dtype) not in HALVES or not isinstance(tensor, relax.Var):
            return moved
        return View(tensor, _contiguous(shape))

    def _moved(self, tensor: Any, value: Any, own: Any, shape: Any) -> View | None:
        if isinstance(value, relax.TupleGetItem):
            view = self._part(value)
            return None if view is None else view.reshaped(shape)
        if isinstance(value, relax.Var):
            return self.of(value, shape)
        name = operator_of(value)
        if not name:
            return None
        operand = value.args[0]
        if name in RESHAPES:
            # Where memory is seen in another shape, all sizes stay known.
            return self.of(operand, shape) if _tells_sizes(operand, tensor) else None
        if name == "relax.astype":
            types = str(operand.ty.dtype), str(tensor.ty.dtype)
            widens = types[0] in HALVES and types[1] == "float32"
            return self.of(operand, shape) if widens or types[0] == types[1] else None
        if name in ("relax.multiply", "relax.divide"):
            return self._scaled(value, own, shape)
        if name == "relax.broadcast_to":
            if same_shape(plain_shape(operand), own):
                return self.of(operand, shape)
            view = self.of(operand)
            return None if view is None else view.broadcast(own).reshaped(shape)
        if name == "relax.permute_dims":
            view = self.of(operand)
            return None if view is None else view.permuted(order_of(value)).reshaped(shape)
        if name == "relax.strided_slice":
            view = self._sliced(value)
            return None if view is None else view.reshaped(shape)
        return None

    def _scaled(self, call: Any, own: Any, shape: Any) -> View | None:
        """What is multiplied or divided by a number in single precision."""
        if str(call.ty.dtype) != "float32":
            return None
        is_product = operator_of(call) == "relax.multiply"
        pairs = [tuple(call.args)]
        if is_product:
            pairs.append(tuple(reversed(call.args)))
        for tensor, other in pairs:
            number = uniform_number(self._values.get(other, other))
            if number is None or not same_shape(plain_shape(tensor), own):
                continue
            if not is_product and number == 0:
                return None
            view = self.of(tensor, shape)
            factor = float(number) if is_product else 1.0 / float(number)
            return None if view is None else replace(view, factor=view.factor * factor)
        return None

    def _part(self, field: relax.TupleGetItem) -> View | None:
        """A part of a tensor that is split along an axis."""
        split: Any = self._values.get(field.tuple_value)
        if operator_of(split) != "relax.split":
            return None
        tensor, sections = split.args[0], split.attrs.indices_or_sections
        view = self.of(tensor)
        if view is None:
            return None
        axis = int(split.attrs.axis) % len(view.axes)
        if isinstance(sections, int | tirx.IntImm):
            size = plain_shape(field)[axis]  # type: ignore[index]
            first = size * int(field.index)
        else:
            first = 0 if field.index == 0 else int(sections[field.index - 1])
        return _from(view, axis, first, plain_shape(field))

    def _sliced(self, call: Any) -> View | None:
        """What is cut out of a tensor along axes, each place beside the next."""
        tensor, *places = call.args
        numbers: list[Any] = [_numbers(each) for each in places]
        view, shape = self.of(tensor), plain_shape(call)
        if view is None or len(numbers) < 3 or None in numbers or shape is None:
            return None
        axes, first, _, *steps = numbers
        if any(step != 1 for each in steps for step in each) or any(each < 0 for each in first):
            return None
        for axis, begin in zip(axes, first, strict=True):
            found = _from(view, axis % len(shape), begin, shape)
            if found is None:
                return None
            view = found
        return replace(view, axes=tuple(map(_resized, view.axes, shape)))


def _is_usable(view: View) -> bool:
    """Whether a view could be one of rows, perhaps transposed."""
    steps = [view.begin, *(axis.stride for axis in view.axes)]
    return sum(not _is_whole(step) for step in steps) <= 1


def _resized(axis: Axis, size: Any) -> Axis:
    return replace(axis, size=size)


def _from(view: View, axis: int, first: Any, shape: Any) -> View | None:
    """The part of a view that begins at a place of an axis, and has a shape."""
    of = view.axes[axis]
    if not is_one(of.shared):
        return None
    axes = list(view.axes)
    axes[axis] = replace(of, size=shape[axis])
    return replace(view, axes=tuple(axes), begin=view.begin + of.stride * first)


def _numbers(places: Any) -> list[int] | None:
    """Whole numbers of a tuple or a shape; ``None`` if some are not known."""
    fields = getattr(places, "fields", None) or getattr(places, "values", None) or ()
    found = [getattr(each, "value", each) for each in fields]
    if not all(isinstance(each, int | tirx.IntImm) for each in found):
        return None
    return [int(each) for each in found]


def _tells_sizes(tensor: Any, other: Any) -> bool:
    """Whether the shape of a tensor tells each size that another's does."""

    def told(each: Any) -> set[Any]:
        return {size for size in plain_shape(each) or () if isinstance(size, tvm.ir.Var)}

    return told(tensor) >= told(other)


def contiguous(sizes: Sequence[Any], source: Any = None) -> View:
    """A tensor as it is."""
    return View(source, _contiguous(sizes))


def order_of(call: Any) -> list[int]:
    """The order of axes of a call that permutes them."""
    rank, axes = int(call.args[0].ty.ndim), call.attrs.axes
    return list(range(rank))[::-1] if axes is None else [int(axis) % rank for axis in axes]


def _same_axis(left: Axis, right: Axis) -> bool:
    same = same_size(left.size, right.size) and same_size(left.stride, right.stride)
    return same and is_one(left.shared)


def _follow(axes: Sequence[Axis]) -> bool:
    """Whether each axis goes on where the next one ends."""
    stride: Any = 1
    for axis in reversed(axes):
        if not is_one(axis.shared) or not same_size(axis.stride, stride):
            return False
        stride = stride * axis.size
    return True


def _contiguous(shape: Sequence[Any]) -> tuple[Axis, ...]:
    stride: Any = 1
    axes: list[Axis] = []
    for size in reversed(shape):
        axes.insert(0, Axis(size, stride))
        stride = stride * size
    return tuple(axes)


def _product(sizes: Sequence[Any]) -> Any:
    return reduce(mul, sizes, 1)


def _first_group(inner: Sequence[Any], outer: Sequence[Any]) -> tuple[int, int] | None:
    """The fewest sizes of both whose products are equal."""
    most = len(inner) + len(outer)
    for total in range(2, most + 1):
        for count in range(max(1, total - len(outer)), min(len(inner), total - 1) + 1):
            rest = total - count
            if same_size(_product(inner[:count]), _product(outer[:rest])):
                return count, rest
    return None


def _regrouped(axes: Sequence[Axis], sizes: Sequence[Any]) -> list[Axis] | None:
    """Axes as one, and that one as axes of other sizes; ``None`` if they have no strides then."""
    one = axes[-1]
    for axis in reversed(axes[:-1]):
        joined = _joined(axis, one)
        if joined is None:
            return None
        one = joined
    if len(sizes) == 1:
        return [one]
    if not is_one(one.shared):
        if len(sizes) == 2 and same_size(sizes[1], one.shared):
            return [Axis(sizes[0], one.stride), Axis(sizes[1], 0)]
        return None
    stride: Any = one.stride
    found: list[Axis] = []
    for size in reversed(sizes):
        found.insert(0, Axis(size, stride))
        stride = stride * size
    return found


def _joined(outer: Axis, inner: Axis) -> Axis | None:
    """Two neighbouring axes as one; ``None`` if it has no stride."""
    size = outer.size * inner.size
    if not is_one(outer.shared):
        return None
    if same_size(inner.stride, 0):
        return Axis(size, 0) if same_size(outer.stride, 0) else Axis(size, outer.stride, inner.size)
    if is_one(inner.shared):
        follows = same_size(outer.stride, inner.stride * inner.size)
        return Axis(size, inner.stride) if follows else None
    steps = tirx.floordiv(_expression(inner.size), _expression(inner.shared))
    if same_size(_expression(outer.stride), inner.stride * steps):
        return Axis(size, inner.stride, inner.shared)
    return None


def _expression(size: Any) -> Any:
    return tirx.IntImm("int64", size) if isinstance(size, int) else size


def _is_whole(size: Any) -> bool:
    """Whether a number of elements is certainly one of whole vectors."""
    if isinstance(size, int | tirx.IntImm):
        return int(size) % _TOGETHER == 0
    return bool(Analyzer().can_prove_equal(tirx.floormod(size, _TOGETHER), 0))
