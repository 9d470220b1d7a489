"""Finds attention: a product that is weighted by a softmax of another product's elements."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tvm

from tvm_scatter.errors import ScatterError
from tvm_scatter.lowering.inlined import ELEMENTWISE, MOVES, RESHAPES, operands_of, scalar_of
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.shapes import plain_shape, same_shape
from tvm_scatter.problem.reductions import HALVES

from .bindings import Binding, Bindings
from .created import uniform_number
from .strided_views import StridedViews, View, contiguous, order_of

_PRODUCT, _SOFTMAX, _NOT = "relax.matmul", "relax.nn.softmax", "relax.logical_not"
#: What a score is computed from for each of its elements anew: it is cheap, and reads little.
_CHEAP = MOVES | {
    f"relax.{name}"
    for name in (
        *("arange", "full", "full_like", "zeros", "ones", "zeros_like", "ones_like"),
        *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
        *("logical_and", "logical_or", "logical_not", "where", "astype", "triu", "tril"),
    )
}

#: The same of whole numbers, which are mostly places.
_OF_INTEGERS = ("relax.add", "relax.subtract", "relax.multiply", "relax.floor_divide")


class NoAttention(ScatterError):
    """Why a product is no attention that one kernel computes. Its text is a clause."""


@dataclass(frozen=True)
class FoundAttention:
    """Attention in a function.

    Attributes
    ----------
    result : Binding
        Binds what the kernel writes.
    order : tuple of int
        How its elements lie in memory: the axes of the scores, the last one that of the values, in
        the order in which the result has them. It may have them in another shape.
    outer : sequence of (int or expression)
        The sizes of the scores, but for queries and keys.
    query, key, value : View
        The operands, all with axes like those of the scores.
    product : relax.Var
        The product of queries and keys.
    scores : relax.Var
        What the softmax is of.
    calls : dict
        What computes it from the product and other tensors, by variable, in order.
    numbers : dict
        Variables among these tensors that are numbers.
    empty_is_zero : bool
        Whether weights are zero where a query sees no key.
    inside : set of Var
        What is not computed any more.
    """

    result: Binding
    order: tuple[int, ...]
    outer: Sequence[Any]
    query: View
    key: View
    value: View
    product: Any
    scores: Any
    calls: dict[Any, Any]
    numbers: dict[Any, Any]
    empty_is_zero: bool
    inside: set[Any]


class AttentionSearch:
    """Finds attention in a function."""

    def __init__(self, bindings: Bindings) -> None:
        self._values = {each.var: each.value for each in bindings}
        self._by_var = {each.var: each for each in bindings}
        self._readers, self._returned = bindings.readers(), bindings.returned
        self._views = StridedViews(self._values)

    def is_candidate(self, binding: Binding) -> bool:
        """Whether a binding is of a product with the weights of a softmax."""
        if not binding.fused or operator_of(binding.value) != _PRODUCT:
            return False
        weights = self._without_moves(binding.value.args[0], set())
        return self._softmax(weights, set()) is not None

    def found(self, binding: Binding) -> FoundAttention:
        """The attention whose last product a candidate is.

        Raises
        ------
        NoAttention
            If one kernel does not compute it.
        """
        last, inside = binding.value, {binding.var}
        weights = self._without_moves(last.args[0], inside)
        softmax = self._softmax(weights, inside)
        assert softmax is not None, "it is a candidate"
        call, empty_is_zero = softmax
        scores = call.args[0]
        shape = _shape(scores)
        if int(call.attrs.axis) % len(shape) != len(shape) - 1:
            raise NoAttention("its softmax is not along the keys")
        calls, numbers, product = self._computed(scores, inside)
        first = self._values[product]
        *outer, queries, keys = shape
        query = self._operand(first, 0, [*outer, queries])
        key = self._operand(first, 1, [*outer, keys], by_columns=True)
        value = self._operand(last, 1, [*outer, keys])
        of_weights = _shape(last.args[0])
        if not same_shape(of_weights[-2:], [queries, keys]):
            raise NoAttention("its weights are put together in other rows")
        if not same_shape(_shape(binding.var)[:-2], of_weights[:-2]):
            raise NoAttention("several values share their weights")
        result, order = self._result(binding, outer, inside)
        self._check_unread(inside, result)
        return FoundAttention(
            *(result, order, outer, query, key, value, product, scores),
            *(calls, numbers, empty_is_zero, inside),
        )

    def _without_moves(self, tensor: Any, inside: set[Any]) -> Any:
        """What a tensor was before it was moved, or got another type of floats."""
        passed: list[Any] = []
        while True:
            value: Any = self._values.get(tensor)
            name = operator_of(value)
            if name not in MOVES and name != "relax.astype":
                inside.update(each.var for each in passed)
                return tensor if self._stays(tensor, passed) else None
            passed.insert(0, self._by_var[tensor])
            tensor = value.args[0]

    def _stays(self, tensor: Any, moves: Sequence[Binding]) -> bool:
        """Whether the elements of a tensor are in their order behind some moves."""
        sizes = plain_shape(tensor)
        view = None if sizes is None else contiguous(sizes)
        for move in moves:
            view = None if view is None else _moved(view, move)
        order = None if view is None or sizes is None else view.memory_order(sizes)
        return order is not None and list(order) == sorted(order)

    def _softmax(self, weights: Any, inside: set[Any]) -> tuple[Any, bool] | None:
        """The softmax that weights are, and whether they are zero where nothing is seen."""
        value: Any = self._values.get(weights)
        if operator_of(value) == _SOFTMAX:
            inside.add(weights)
            return value, False
        if operator_of(value) != "relax.where":
            return None
        sees_nothing, zero, weights_ = value.args
        softmax: Any = self._values.get(weights_)
        if operator_of(softmax) != _SOFTMAX or self._number(zero) != 0:
            return None
        found = {weights, zero, weights_}
        if not self._asks_for_nothing(sees_nothing, softmax.args[0], found):
            return None
        inside |= {each for each in found if each in self._values}
        return softmax, True

    def _asks_for_nothing(self, asks: Any, scores: Any, inside: set[Any]) -> bool:
        """Whether a tensor says of which rows all scores are minus infinity."""
        call: Any = self._stepped(asks, inside)
        if operator_of(call) == "relax.equal":
            counted: Any = self._stepped(call.args[0], inside)
            if operator_of(counted) != "relax.sum" or self._number(call.args[1]) != 0:
                return False
            one: Any = self._stepped(counted.args[0], inside)
            if operator_of(one) != "relax.where" or list(map(self._number, one.args[1:])) != [0, 1]:
                return False
            masked = self._stepped(one.args[0], inside)
        else:
            counted = self._behind_not(call, inside)
            if operator_of(counted) != "relax.max":
                return False
            masked = self._behind_not(self._stepped(counted.args[0], inside), inside)
        return _is_of_rows(counted) and self._is_least(masked, scores)

    def _behind_not(self, call: Any, inside: set[Any]) -> Any:
        """What computes the opposite of a truth value; ``None`` if nothing is known to."""
        return self._stepped(call.args[0], inside) if operator_of(call) == _NOT else None

    def _is_least(self, call: Any, scores: Any) -> bool:
        """Whether a call says which scores are minus infinity."""
        if operator_of(call) != "relax.equal":
            return False
        return call.args[0].same_as(scores) and bool(self._number(call.args[1]) == -math.inf)

    def _number(self, tensor: Any) -> Any:
        """The number that all elements of a tensor are; ``None`` if that is not known."""
        value: Any = self._values.get(tensor, tensor)
        while operator_of(value) in MOVES:
            value = self._values.get(value.args[0], value.args[0])
        return uniform_number(value)

    def _stepped(self, tensor: Any, inside: set[Any]) -> Any:
        """What computes a tensor, behind changes of the type of truth values."""
        inside.add(tensor)
        call: Any = self._values.get(tensor)
        while operator_of(call) == "relax.astype":
            inside.add(call.args[0])
            call = self._values.get(call.args[0])
        return call

    def _computed(
        self, scores: Any, inside: set[Any]
    ) -> tuple[dict[Any, Any], dict[Any, Any], Any]:
        """What computes scores from a product, the numbers in it, and the product."""
        products: dict[Any, None] = {}
        known: dict[Any, bool] = {}

        def depends(tensor: Any) -> bool:
            """Whether a tensor is computed from the product, element by element."""
            if tensor not in known:
                value = self._values.get(tensor)
                name = operator_of(value)
                if name == _PRODUCT and same_shape(_shape(tensor)[-2:], _shape(scores)[-2:]):
                    products[tensor] = None
                    known[tensor] = True
                else:
                    operands = operands_of(value) if name in ELEMENTWISE | MOVES else []
                    dependent = [depends(each) for each in operands]
                    known[tensor] = any(dependent)
            return known[tensor]

        if not depends(scores) or len(products) != 1:
            raise NoAttention(f"its scores are computed from {len(products)} products")
        [product] = products
        calls: dict[Any, Any] = {}
        numbers: dict[Any, Any] = {}

        def gather(tensor: Any) -> None:
            value = self._values.get(tensor)
            if tensor in calls or tensor.same_as(product):
                return
            if isinstance(value, tvm.ir.GenericConst) and scalar_of(value) is not None:
                numbers[tensor] = value
            elif depends(tensor) or _is_cheap(value):
                for each in operands_of(value):
                    gather(each)
                calls[tensor] = value

        gather(scores)
        inside |= {each for each, dependent in known.items() if dependent}
        return calls, numbers, product

    def _operand(
        self, call: Any, which: int, rows: Sequence[Any], by_columns: bool = False
    ) -> View:
        """An operand of a product as rows of a tensor in memory.

        Parameters
        ----------
        rows : sequence of (int or expression)
            The sizes of its axes, in front of that of the elements of a row.
        by_columns : bool
            Whether these rows are the columns of the operand.
        """
        tensor, product = call.args[which], _shape(call)
        own = _shape(tensor)
        if len(own) < 2 or len(product) < 2:
            raise NoAttention("it has a product with a vector")
        wide = own[-2] if by_columns else own[-1]
        last = [wide, rows[-1]] if by_columns else [rows[-1], wide]
        shape = [*rows[:-1], *last]
        if same_shape(own[:-2], product[:-2]):
            view = self._views.of(tensor, shape)
        else:
            found = self._views.of(tensor)
            view = None
            if found is not None:
                view = found.broadcast([*product[:-2], *own[-2:]]).reshaped(shape)
        if view is not None and by_columns:
            rank = len(shape)
            view = view.permuted([*range(rank - 2), rank - 1, rank - 2])
        if view is None or not view.lies_in_rows:
            raise NoAttention("its operands are no rows of 16-bit floats in memory")
        return view

    def _result(
        self, binding: Binding, outer: Sequence[Any], inside: set[Any]
    ) -> tuple[Binding, tuple[int, ...]]:
        """What the kernel writes, behind changes of type and order, and its order of axes."""
        *_, rows, wide = _shape(binding.var)
        natural = [*outer, rows, wide]
        view = contiguous(natural).reshaped(_shape(binding.var))
        best, passed = (binding, tuple(range(len(natural)))), [binding.var]
        now = binding
        while now.var not in self._returned and len(self._readers.get(now.var, ())) == 1:
            [reader] = self._readers[now.var]
            if not reader.fused or reader.fused != binding.fused:
                break
            if operator_of(reader.value) == "relax.astype":
                types = [str(each.var.ty.dtype) for each in (now, reader)]
                if types[0] != "float32" or types[1] not in HALVES:
                    break
            else:
                following = None if view is None else _moved(view, reader)
                if following is None:
                    if operator_of(reader.value) in RESHAPES and best[0] is now:
                        # Its elements lie in memory as before.
                        best = reader, best[1]
                        inside.update(passed)
                    break
                view = following
            now = reader
            passed.append(now.var)
            order = None if view is None else view.memory_order(natural)
            if order is not None and order[-1] == len(natural) - 1:
                best = now, order
                inside.update(passed)
        inside.discard(best[0].var)
        if str(best[0].var.ty.dtype) not in HALVES:
            raise NoAttention("its result is in single precision")
        return best

    def _check_unread(self, inside: set[Any], result: Binding) -> None:
        """Raise if others read what would not be computed any more."""
        for var in inside:
            readers = {each.var for each in self._readers.get(var, ())}
            if var in self._returned or readers - inside - {result.var}:
                raise NoAttention(f"{var.name} is read by others, too")


def _moved(view: View, move: Binding) -> View | None:
    """A view behind what moves it; ``None`` if that is no view, or has no strides."""
    name, shape = operator_of(move.value), plain_shape(move.var)
    if shape is None:
        return None
    if name in RESHAPES:
        return view.reshaped(shape)
    if name == "relax.permute_dims":
        return view.permuted(order_of(move.value))
    stays = name == "relax.astype" or name in MOVES
    return view if stays and same_shape(view.shape, list(shape)) else None


def _is_cheap(value: Any) -> bool:
    """Whether something is computed anew for each score, and not read from memory."""
    name = operator_of(value)
    return name in _CHEAP or (name in _OF_INTEGERS and "int" in str(value.ty.dtype))


def _is_of_rows(call: Any) -> bool:
    """Whether a reduction is along the last axis, which is kept."""
    rank = call.args[0].ty.ndim
    axes = call.attrs.axis
    return axes is not None and [int(each) % rank for each in axes] == [rank - 1]


def _shape(tensor: Any) -> tuple[Any, ...]:
    shape = plain_shape(tensor)
    if shape is None:
        raise NoAttention("a shape in it is not known")
    return shape


def leaves(found: FoundAttention) -> Iterator[Any]:
    """What scores are computed from, beside the product."""
    for call in found.calls.values():
        for each in operands_of(call):
            known = each in found.calls or each in found.numbers or each.same_as(found.product)
            if not known and scalar_of(each) is None:
                yield each
