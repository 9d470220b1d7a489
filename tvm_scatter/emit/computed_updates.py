"""Updates that a function computes from other tensors, element by element, where they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import reduce
from operator import mul
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.sym import Analyzer
from tvm.tirx.script import builder as T

from tvm_scatter.problem.signature import Dim
from tvm_scatter.problem.symbolic_size import SymbolicSize

from .known_leaves import NOTHING_KNOWN, KnownLeaves

#: The functions that an update may be computed by, besides operators. TVM's names.
FUNCTIONS = (
    *("exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "sin", "cos", "pow", "isnan"),
    *("fabs", "floor", "ceil", "trunc", "nearbyint"),
)
#: A branch, of which only one side is evaluated.
BRANCH = "if_then_else"
#: The attribute of a function that names those of its leaves that are the index of the scatter.
OWN_INDEX = "tvm_scatter.own_index"


@dataclass(frozen=True)
class Producer:
    """A function that computes updates.

    Attributes
    ----------
    function : tvm.tirx.PrimFunc
        Its parameters are the tensors that it reads, the leaves, then the updates, and perhaps
        their logits. It stores each element of these once, as one expression. Behind logits there
        may be terms and sums: a logit then reads sums of terms, which nothing stores.
    leaves : tuple of tuple of Dim
        The shapes of the leaves.
    updates : tuple of Dim
        The shape of the updates.
    """

    function: Any
    leaves: tuple[tuple[Dim, ...], ...]
    updates: tuple[Dim, ...]

    @property
    def buffers(self) -> list[Any]:
        """The buffers of its parameters."""
        return list(self.function.params)

    @property
    def dtypes(self) -> list[str]:
        """The data types of the leaves."""
        return [str(buffer.dtype) for buffer in self.buffers[: len(self.leaves)]]

    @property
    def stores(self) -> list[Any]:
        """The statements that store an element of the updates, its logit and a term, if any."""
        found: list[Any] = []
        tvm_ffi.structural_walk(self.function.body, (tirx.BufferStore, found.append))
        of = {store.buffer: store for store in found}
        return [of[buffer] for buffer in self.buffers[len(self.leaves) :] if buffer in of]

    @property
    def sums(self) -> Any:
        """The buffer of the sums of terms; ``None`` if logits read none."""
        others = self.buffers[len(self.leaves) :]
        return others[3] if len(others) > 3 else None

    @property
    def own_index(self) -> list[int]:
        """The numbers of the leaves that are the index of the scatter."""
        return [int(each) for each in (self.function.attrs or {}).get(OWN_INDEX, ())]


class ComputedUpdates:
    """The updates of a scatter as an expression of the tensors that they are computed from.

    Where a stored tensor of updates is read as a flat buffer, this is read the same way.

    Parameters
    ----------
    producer : Producer
        The function that computes the updates.
    leaves : sequence of buffer
        The leaves in the function that is emitted: one-dimensional.
    symbols : mapping of str to expression
        The symbolic sizes in the function that is emitted.

    Attributes
    ----------
    axes : list of Var
        The coordinates of an element: one for each axis of the updates.
    shape : list of (int or expression)
        The sizes of these axes.
    value : expression
        The element, over the axes and the flat leaves.
    dtype : str
        The data type in which it is emitted.
    logit : expression or None
        Its logit, if it has one.
    term : expression or None
        What is added up for the logit, over the elements that have it, if anything is.
    sum : Var or None
        The sum of the terms, in the logit.
    symbols : mapping of str to expression
        The symbolic sizes.
    sum_axes : set of Var
        The axes along which the sums differ.
    destination : Var or None
        The destination of the element's update, where what is computed depends on it.
    """

    destination: Any = None
    #: What is known of the sizes of the leaves.
    known: KnownLeaves = NOTHING_KNOWN
    #: What rounds the value to bfloat16 before it is reduced, if it is emitted in float32.
    rounding: Callable[[Any], Any] | None = None

    def __init__(
        self, producer: Producer, leaves: Sequence[Any], symbols: Mapping[str, Any]
    ) -> None:
        self.leaves, self.symbols = list(leaves), symbols
        self.dims = producer.updates
        self.shape = [_size(dim, symbols) for dim in producer.updates]
        self.own_index = [leaves[at] for at in producer.own_index]
        store, *others = producer.stores
        self.axes = list(store.indices)
        analyzer = self.analyzer()

        def positioned(value: Any) -> Any:
            return with_positions(_over_flat(producer, value, self.leaves, symbols), analyzer)

        self.value = positioned(store.value)
        self.dtype = str(self.value.ty.dtype)
        #: Makes of an expression for some element the one that is emitted.
        self.emitted: Callable[[Any], Any] = lambda expression: expression
        self.logit: Any = None
        self.term: Any = None
        self.sum: Any = None
        self.sum_axes: set[Any] = set()
        second = []
        for other in others:
            own = dict(zip(other.indices, self.axes, strict=True))
            second.append(positioned(substitute(other.value, own)))
        if second:
            self.logit, *terms = second
            self.term = terms[0] if terms else None
        if self.term is not None:
            self._name_sum(producer.sums)

    def _name_sum(self, sums: Any) -> None:
        """Give the sum that the logit reads a name."""
        self.sum = tirx.Var("sum", str(sums.dtype))

        def name(load: Any) -> Any:
            if not load.source.same_as(sums):
                return load
            for index in load.indices:
                self.sum_axes |= {*tirx.analysis.undefined_vars(index)} & {*self.axes}
            return self.sum

        self.logit = tvm_ffi.structural_map(self.logit, (tvm.ir.TensorLoad, name))

    def with_short_leaves(self) -> ComputedUpdates:
        """The same where all leaves are short."""
        short = copy(self)
        short.known = KnownLeaves(are_short=True)
        return short

    def analyzer(self) -> Any:
        """An analyzer that knows how long the axes are."""
        analyzer = Analyzer()
        for axis, size in zip(self.axes, self.shape, strict=True):
            analyzer.bind(axis, tvm.ir.Range(0, size))
        return analyzer

    def __getitem__(self, at: Any) -> Any:
        """The element at a flat position, bound to a variable. Emits statements."""
        return T.bind(self.expression(at, 0, 1))

    def expression(self, at: Any, column: Any, axes: int, value: Any = None) -> Any:
        """The element some columns after a flat position, in the same row along the last axes.

        What depends on the position alone is then the same for the whole row.

        Parameters
        ----------
        value : expression, optional
            An expression over the coordinates in place of the element.
        """
        rows, row = self.shape[:-axes], self.shape[-axes:]
        coordinates: list[Any] = []
        if rows:
            width = _product(row)
            column = tirx.truncmod(at, width) + column
            at = tirx.truncdiv(at, width)
            for size in reversed(rows[1:]):
                coordinates.insert(0, tirx.truncmod(at, size))
                at = tirx.truncdiv(at, size)
            coordinates.insert(0, at)
        else:
            column = at + column
        known = {
            axis: tirx.Cast(str(axis.ty.dtype), coordinate)
            for axis, coordinate in zip(
                self.axes, [*coordinates, *unravelled(column, row)], strict=True
            )
        }
        value = substitute(self.value if value is None else value, known)
        return self.emitted(with_positions(value, Analyzer()) if axes > 1 else value)

    @property
    def expressions(self) -> list[Any]:
        """The element, and its logit and term if it has them."""
        found = (self.value, self.logit, self.term)
        return [expression for expression in found if expression is not None]

    def axes_of(self, line: Any) -> int | None:
        """How many of the last axes make up a row of ``line`` elements; ``None`` if none do."""
        for axes in range(1, len(self.shape) + 1):
            if same_number(_product(self.shape[-axes:]), line):
                return axes
        return None


def element(updates: Any, at: Any, column: Any, line: Any) -> Any:
    """An update, ``column`` elements after ``at``, in a row of ``line`` elements of the updates.

    Parameters
    ----------
    updates : buffer or ComputedUpdates
        The updates.
    """
    value = element_expression(updates, at, column, line)
    return T.bind(value) if isinstance(updates, ComputedUpdates) else value


def element_expression(updates: Any, at: Any, column: Any, line: Any) -> Any:
    """As :func:`element`, bound to no variable."""
    if not isinstance(updates, ComputedUpdates):
        return updates[at + column]
    axes = updates.axes_of(line)
    if axes is None:
        return updates.expression(at + column, 0, 1)
    return updates.expression(at, column, axes)


def _product(sizes: Sequence[Any]) -> Any:
    return reduce(mul, sizes)


def same_number(left: Any, right: Any) -> bool:
    """Whether two numbers or expressions are certainly equal."""
    if isinstance(left, int) or isinstance(right, int):
        return isinstance(left, int) and isinstance(right, int) and left == right
    return bool(Analyzer().can_prove_equal(left, right))


def ravelled(coordinates: Sequence[Any], sizes: Sequence[Any]) -> Any:
    """The position of coordinates in a row of some axes."""
    position: Any = tirx.IntImm("int64", 0)
    for coordinate, size in zip(coordinates, sizes, strict=True):
        position = position * size + coordinate
    return position


def unravelled(position: Any, sizes: Sequence[Any]) -> list[Any]:
    """The coordinates of a position in a row of some axes."""
    coordinates: list[Any] = []
    for size in reversed(sizes[1:]):
        coordinates.insert(0, tirx.floormod(position, size))
        position = tirx.floordiv(position, size)
    return [position, *coordinates][: len(sizes)]


def with_positions(expression: Any, analyzer: Any) -> Any:
    """The expression, whose loads are at the positions that coordinates of a row cancel out to.

    A compiler then sees that they are neighbours.
    """

    def simple(load: Any) -> Any:
        return tirx.BufferLoad(load.source, [analyzer.simplify(at) for at in load.indices])

    return tvm_ffi.structural_map(expression, (tvm.ir.TensorLoad, simple))


def substitute(expression: Any, values: Mapping[Any, Any]) -> Any:
    """The expression with variables replaced."""
    return tvm_ffi.structural_map(expression, (tvm.ir.Var, lambda var: values.get(var, var)))


def loads_of(expression: Any) -> Iterator[Any]:
    """The loads in an expression."""
    found: list[Any] = []
    tvm_ffi.structural_walk(expression, (tvm.ir.TensorLoad, found.append))
    return iter(found)


def unguarded_loads(expression: Any) -> Iterator[Any]:
    """The loads in an expression that are evaluated in any case."""
    if isinstance(expression, tvm.ir.TensorLoad):
        yield expression
    elif isinstance(expression, tvm.ir.Call) and function_name(expression) == BRANCH:
        yield from unguarded_loads(expression.args[0])
        return
    for part in parts_of(expression):
        yield from unguarded_loads(part)


def parts_of(expression: Any) -> list[Any]:
    """The expressions that an expression is made of."""
    if isinstance(expression, tvm.ir.TensorLoad):
        return list(expression.indices)
    if isinstance(expression, tvm.ir.Call):
        return list(expression.args)
    if isinstance(expression, tirx.Select):
        return [expression.condition, expression.true_value, expression.false_value]
    if isinstance(expression, tirx.Cast):
        return [expression.value]
    return [getattr(expression, name) for name in ("a", "b") if hasattr(expression, name)]


def function_name(call: Any) -> str:
    """TVM's name of the function that an expression calls, without its dialect."""
    return str(getattr(call.op, "name", "")).rpartition(".")[2]


def _over_flat(
    producer: Producer, stored: Any, leaves: Sequence[Any], symbols: Mapping[str, Any]
) -> Any:
    """A stored expression, over one-dimensional leaves and sizes of the emitted function."""
    shaped = producer.buffers[: len(producer.leaves) + 1]
    numbers = {buffer: at for at, buffer in enumerate(shaped[:-1])}
    sizes = {
        dim: _size(name, symbols)
        for buffer, names in zip(shaped, (*producer.leaves, producer.updates), strict=True)
        for dim, name in zip(buffer.shape, names, strict=True)
        if isinstance(dim, tvm.ir.Var)
    }
    shapes = [[_size(dim, symbols) for dim in shape] for shape in producer.leaves]

    def flat(load: Any) -> Any:
        number = numbers.get(load.source)
        if number is None:
            return load
        position: Any = tirx.IntImm("int64", 0)
        for index, size in zip(load.indices, shapes[number], strict=True):
            position = position * size + tirx.Cast("int64", index)
        return tirx.BufferLoad(leaves[number], [position])

    # Loads first, because their buffers have the sizes of the function that they come from.
    value = tvm_ffi.structural_map(stored, (tvm.ir.TensorLoad, flat))
    return substitute(value, sizes)


def _size(dim: Dim, symbols: Mapping[str, Any]) -> Any:
    return SymbolicSize.product([dim]).value(symbols)
