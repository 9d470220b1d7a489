"""Makes the function that computes attention without a matrix of scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.sym import Analyzer
from tvm.target import Target
from tvm.tirx.script import builder as T

from tvm_scatter.emit.attention import Rows
from tvm_scatter.emit.computed_updates import function_name, ravelled
from tvm_scatter.emit.expressions import all_of
from tvm_scatter.emit.parameters import MADE_FOR, PRIM_FUNC_ATTRS, opaque_block
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.shapes import plain_size, same_shape, static_shape
from tvm_scatter.problem.reductions import item_bytes

from .inlined import ELEMENTWISE, MOVES, RESHAPES, Inliner, NotInlined, operands_of

_RANGE = "relax.arange"


@dataclass(frozen=True)
class RowsOf:
    """Rows of a tensor for each of some coordinates.

    Attributes
    ----------
    source : relax.Expr
        The tensor; ``None`` for the result.
    strides : sequence of (int or expression)
        From an element to the next along each coordinate.
    shared : sequence of (int or expression)
        How many neighbours along each coordinate have the same element.
    stride : int or expression
        From a row to the next.
    begin : int or expression
        The first element.
    """

    source: Any
    strides: Sequence[Any]
    shared: Sequence[Any]
    stride: Any
    begin: Any = 0


@dataclass(frozen=True)
class ScoresOf:
    """How scores are computed from products of queries and keys.

    Attributes
    ----------
    product, scores : relax.Var
        Both.
    calls : mapping
        What computes the scores, by variable, in order.
    numbers : mapping
        The variables among their operands that are numbers.
    leaves : sequence of relax.Expr
        The tensors among them.
    """

    product: Any
    scores: Any
    calls: Mapping[Any, Any]
    numbers: Mapping[Any, Any]
    leaves: Sequence[Any]


class AttentionFunction:
    """Makes the function.

    Parameters
    ----------
    scores : ScoresOf
        How they are computed.
    sources : sequence of relax.Expr
        The tensors of queries, keys and values.

    Raises
    ------
    NotInlined
        If a score is not one expression.
    """

    def __init__(self, scores: ScoresOf, sources: Sequence[Any]) -> None:
        #: The tensors that the function reads, each once.
        self.inputs: list[Any] = []
        for each in (*sources, *scores.leaves):
            if not any(each.same_as(other) for other in self.inputs):
                self.inputs.append(each)
        unshaped = _unshaped(scores)
        own: Any = scores.product
        if unshaped:
            own = relax.Var("product", relax.TensorType(scores.scores.ty.shape, own.ty.dtype))
        self._inliner = Inliner([*self.inputs, own])
        self._inliner.alias(scores.product, own)
        self._scores = scores
        for var, number in scores.numbers.items():
            self._inliner.add_number(var, number)
        for var, call in scores.calls.items():
            if operator_of(call) == _RANGE:
                self._inliner.add_range(var, call)
            elif var in unshaped and operator_of(call) in MOVES:
                self._inliner.alias(var, call.args[0])
            else:
                self._inliner.add(var, call)
        *self._tensors, self._product = self._inliner.leaves

    def sized(self, size: Any) -> Any:
        """A size in the variables of the function."""
        size = plain_size(size)
        return size if isinstance(size, int) else plain_size(self._inliner.sized(size))

    def score(self, axes: Sequence[Any], query: Any, key: Any) -> tuple[Any, Any]:
        """The product of a query and a key as a variable, and the score over it.

        Elements are those of placeholders.
        """
        at = [*axes, query, key]
        own = tirx.Var("own", "float32")
        found = self._inliner.expression(self._scores.scores, at)
        sizes = [self.sized(size) for size in self._scores.scores.ty.shape.values]
        analyzer = Analyzer()
        for axis, size in zip(at, sizes, strict=True):
            analyzer.bind(axis, tvm.ir.Range(0, size))
        place = ravelled(at, sizes)
        refused: list[str] = []

        def loaded(call: Any) -> Any:
            if function_name(call) != "tensor_load" or not call.args[0].same_as(self._product):
                return call
            other = ravelled(call.args[1:], self._product.shape)
            if not analyzer.can_prove_equal(other, place):
                refused.append("scores are computed from products of other queries and keys")
            dtype = str(self._product.dtype)
            return own if dtype == "float32" else tirx.Cast(dtype, own)

        score = tvm_ffi.structural_map(found, (tvm.ir.Call, loaded))
        for reason in refused:
            raise NotInlined(reason)
        return own, score

    def check_sizes(self, problem_sizes: Sequence[Any]) -> None:
        """Raise if a size is that of no tensor that is read."""
        known = {
            size for each in self._tensors for size in each.shape if isinstance(size, tvm.ir.Var)
        }
        for size in problem_sizes:
            for var in [] if isinstance(size, int) else all_of(size, tvm.ir.Var):
                if var not in known:
                    raise NotInlined(f"{var} is the size of no tensor that is read")

    def function(
        self,
        target: Target,
        out_shape: Sequence[Any],
        out_dtype: str,
        has_workspace: bool,
        emit: Callable[..., None],
    ) -> tirx.PrimFunc:
        """The function, given what emits its body.

        Parameters
        ----------
        has_workspace : bool
            Whether its last parameter is memory for numbers of single precision.
        emit : callable
            Is given what finds the flat buffer of a tensor, what makes an expression of elements of
            placeholders one of elements of these, and the flat buffers of the result and of that
            memory, or ``None``.
        """
        shapes = [*(each.shape for each in self._tensors), out_shape]
        dtypes = [*(str(each.dtype) for each in self._tensors), out_dtype]
        if has_workspace:
            shapes.append([tirx.Var("numbers", "int64")])
            dtypes.append("float32")
        last = len(self._tensors)
        with IRBuilder() as builder, T.prim_func(s_tir=True):
            T.func_attr({**PRIM_FUNC_ATTRS, MADE_FOR: str(target.kind.name)})
            handles = [T.arg(f"tensor{at}", T.handle()) for at in range(len(shapes))]
            matched = [
                T.match_buffer(handle, tuple(shape), dtype, align=item_bytes(dtype))
                for handle, shape, dtype in zip(handles, shapes, dtypes, strict=True)
            ]
            with target, opaque_block():
                flat = [
                    T.decl_buffer((_count(shape),), dtype, data=buffer.data)
                    for buffer, shape, dtype in zip(matched, shapes, dtypes, strict=True)
                ]
                emit(self._finder(flat), self._flattener(flat), *[*flat[last:], None][:2])
        return builder.get()

    def _finder(self, flat: Sequence[Any]) -> Callable[[Any], Any]:
        def found(tensor: Any) -> Any:
            return next(
                buffer
                for each, buffer in zip(self.inputs, flat, strict=False)
                if each.same_as(tensor)
            )

        return found

    def _flattener(self, flat: Sequence[Any]) -> Callable[[Any], Any]:
        def loaded(call: Any) -> Any:
            if function_name(call) != "tensor_load":
                return call
            source, *place = call.args
            for tensor, buffer in zip(self._tensors, flat, strict=False):
                if source.same_as(tensor):
                    return tirx.BufferLoad(buffer, [ravelled(place, tensor.shape)])
            return call

        return lambda value: tvm_ffi.structural_map(value, (tvm.ir.Call, loaded))


def _unshaped(scores: ScoresOf) -> set[Any]:
    """Tensors that might have the shape of the scores instead of their own.

    They are computed from the product alone, element by element, before anything else is. What
    would be found by divisions of unknown sizes is then at its own place.
    """
    found = {scores.product}
    for var, call in scores.calls.items():
        operands = [each for each in operands_of(call) if each.ty.ndim > 0]
        if len(operands) != 1 or operands[0] not in found:
            continue
        name = operator_of(call)
        stays = name in MOVES and same_shape(*map(static_shape, (var, operands[0])))
        if name in RESHAPES | ELEMENTWISE or stays:
            found.add(var)
    wanted = static_shape(scores.scores)
    others = {var for var in found if not same_shape(static_shape(var), wanted)}
    for var, call in scores.calls.items():
        if var not in found and any(each in others for each in operands_of(call)):
            return set()
    return found


def _count(shape: Sequence[Any]) -> Any:
    return prod((plain_size(size) for size in shape), start=1)


def rows_at(rows: RowsOf, axes: Sequence[Any], tensor: Any, sized: Callable[[Any], Any]) -> Rows:
    """Rows for coordinates."""
    begin: Any = tirx.IntImm("int64", 0) + sized(rows.begin)
    for axis, stride, shared in zip(axes, rows.strides, rows.shared, strict=True):
        begin = begin + tirx.floordiv(axis, sized(shared)) * sized(stride)
    return Rows(tensor, Analyzer().simplify(begin), sized(rows.stride))
