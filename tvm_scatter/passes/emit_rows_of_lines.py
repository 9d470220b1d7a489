"""Emits scatters of rows in place of scatters into lines that share an index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from tvm_scatter.ops.names import INDEX_PUT
from tvm_scatter.ops.shapes import number_of, plain_shape, same_shape, same_size

from .analysis.line_values import Computed, Leaf, OfBoth, OfEntries, OfLines, axes_of_lines
from .normalised_scatters import Emit, NormalisedRows, reshaped
from .rows_of_lines import Lines, RowsOfLines


def emit_rows(turned: RowsOfLines, emit: Emit) -> relax.Expr:
    """The result of scatters into lines, of scatters of rows that are emitted before."""
    first, lines = turned.scatters[0].scatter, turned.lines
    shape = plain_shape(first.data) or ()
    extents = [shape[axis] for axis in first.axes]
    if turned.fill is not None:
        dtype = str(first.data.ty.dtype)
        full = relax.op.full([*extents, lines], turned.fill, dtype)
        rows = emit(full)
    else:
        rows = reshaped(_turned(first.data, lines, emit), [*extents, lines], emit)
    done: dict[Any, Any] = {}
    for group in turned.groups:
        rows = emit(_Group(group, lines, done, emit).call(rows))
    places = number_of(extents)
    flat = reshaped(rows, [places, lines], emit)
    result = relax.op.permute_dims(flat, [1, 0])
    is_flat = same_shape(shape, [lines, places])
    return result if is_flat else relax.op.reshape(emit(result), list(shape))


@dataclass(frozen=True)
class _Group:
    """Scatters that become one.

    Attributes
    ----------
    turned : dict
        The turned tensors, by the tensors that they were.
    """

    members: Sequence[Lines]
    lines: int
    turned: dict[Any, Any]
    emit: Emit

    @property
    def _count(self) -> Any:
        """The number of entries of each."""
        return self.members[0].scatter.count

    def call(self, rows: Any) -> relax.Call:
        """The scatter into rows."""
        scatters = [each.scatter for each in self.members]
        first = scatters[0].call
        changes: dict[str, Any] = {}
        if len(scatters) > 1:
            last_wins = scatters[0].replaces
            names = list(dict.fromkeys(each.call.operator for each in scatters))
            changes = {
                "unique": False,
                "in_range": all(each.call.in_range for each in scatters),
                "known": "",
                "checked": False,
                "ordered": last_wins or first.ordered,
                "wrap_negative": any(each.wrap_negative for each in scatters),
                "operator": f"{len(scatters)} x {' and '.join(names)}",
            }
        return first.replace(
            form=INDEX_PUT,
            data=rows,
            indices=tuple(self._indices(scatters)),
            updates=self._updates(),
            axes=tuple(range(len(first.axes))),
            **changes,
        ).to_call()

    def _indices(self, scatters: Sequence[NormalisedRows]) -> list[Any]:
        dtypes = {dtype for scatter in scatters for dtype in scatter.index_dtypes}
        dtype = dtypes.pop() if len(dtypes) == 1 else "int64"
        parts = [each.indices(_as_it_is, self.emit, dtype) for each in scatters]
        return [self._stacked(tensors) for tensors in zip(*parts, strict=True)]

    def _updates(self) -> Any:
        """The updates as rows: of each scatter's entries, behind an axis for several scatters."""
        first = self.members[0].value
        if len(self.members) == 1 and isinstance(first, OfBoth):
            # They are in memory: whatever computes nothing itself may scatter them.
            return self._turned(first)
        found = self._value([each.value for each in self.members])
        whole = [len(self.members), self._count, self.lines]
        if not same_shape(plain_shape(found), whole):
            found = self.emit(relax.op.broadcast_to(found, whole))
        return found if len(self.members) > 1 else reshaped(found, whole[1:], self.emit)

    def _value(self, values: Sequence[Any]) -> Any:
        """The same value of all members, of axes for members, entries and lines."""
        first = values[0]
        if isinstance(first, Computed):
            parts = [
                self._value(parts) for parts in zip(*(each.parts for each in values), strict=True)
            ]
            call = first.call
            return self.emit(relax.Call(call.op, parts, call.attrs, call.ty_args))
        if isinstance(first, OfBoth):
            rows = self._turned(first)
            return reshaped(rows, [1, self._count, self.lines], self.emit)
        if isinstance(first, OfEntries):
            same = all(each.is_same(first) for each in values)
            used = values[:1] if same else values
            vectors = [self._flat(each) for each in used]
            return reshaped(self._stacked(vectors), [len(vectors), self._count, 1], self.emit)
        if isinstance(first, OfLines):
            return reshaped(self._flat(first), [1, 1, self.lines], self.emit)
        if isinstance(first, Leaf):
            scalar = first.tensor
            if isinstance(scalar, tvm.ir.GenericConst) and scalar.ty.ndim == 0:
                return scalar
            return reshaped(scalar, [1, 1, 1], self.emit)
        return first

    def _turned(self, leaf: Leaf) -> Any:
        if leaf.tensor not in self.turned:
            tensor = self._broadcast(leaf)
            self.turned[leaf.tensor] = _turned(tensor, self.lines, self.emit)
        return self.turned[leaf.tensor]

    def _flat(self, leaf: Leaf) -> Any:
        tensor = self._broadcast(leaf)
        return reshaped(tensor, [number_of(leaf.shape)], self.emit)

    def _broadcast(self, leaf: Leaf) -> Any:
        tensor = leaf.tensor
        own = plain_shape(tensor) or ()
        if same_size(number_of(own), number_of(leaf.shape)):
            return tensor
        own = own[max(len(own) - len(leaf.shape), 0) :]
        tensor = reshaped(tensor, own, self.emit)
        return self.emit(relax.op.broadcast_to(tensor, list(leaf.shape)))

    def _stacked(self, vectors: Sequence[Any]) -> Any:
        """Vectors in an axis in front, if there are several."""
        if len(vectors) == 1:
            return vectors[0]
        rows = [reshaped(each, [1, self._count], self.emit) for each in vectors]
        return self.emit(relax.op.concat(rows, 0))


def _as_it_is(expression: Any) -> Any:
    """What is emitted gets the variables of the new function by itself."""
    return expression


def _turned(tensor: Any, lines: int, emit: Emit) -> Any:
    """A tensor of lines as rows of an element from each."""
    shape = plain_shape(tensor) or ()
    flat = reshaped(tensor, [lines, number_of(shape[axes_of_lines(shape, lines) :])], emit)
    return emit(relax.op.permute_dims(flat, [1, 0]))
