"""Under ``raise``, checks the indices that several operators read or write by once for all.

All layers of a graph network gather by one row of the edges and scatter by the other. Each of these
operators checks its indices itself. Here an operator in front of the first of them checks, and
returns the index; the others take what it returns, and need no check.

It runs before :func:`ReuseBuffers`, after which reads of one index stand behind writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import tvm
from tvm import relax, tirx

from tvm_scatter.errors import ScatterError
from tvm_scatter.lowering.own_reads import own_read
from tvm_scatter.lowering.plan_read import plan_read
from tvm_scatter.lowering.reads import is_read
from tvm_scatter.lowering.target import strategy_of, target_of
from tvm_scatter.ops import read_ops
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.expectations import EXPECT_INDICES, expect_indices, read_of_expected
from tvm_scatter.ops.names import COPY_RANGES, SCATTER_ND
from tvm_scatter.ops.ordering import order
from tvm_scatter.ops.read_forms import ByTuples
from tvm_scatter.ops.scatter_call import ScatterCall, is_scatter
from tvm_scatter.ops.shapes import same_size, static_shape
from tvm_scatter.options import current_options
from tvm_scatter.passes.analysis.bindings import Binding, Bindings
from tvm_scatter.passes.analysis.definitions import Definitions
from tvm_scatter.passes.analysis.effects import may_write
from tvm_scatter.passes.analysis.same_value import SameValue

from .functions import Emit, with_changes, with_values
from .known_orders import is_order
from .report import note


def ShareChecks() -> tvm.transform.Pass:
    """The pass. It changes nothing under other policies than ``raise``."""

    def share(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        return with_changes(mod, lambda name, function: _shared(mod, name.name_hint, function))

    return tvm.transform.module_pass(share, opt_level=0, name="ShareChecks")


@dataclass(frozen=True)
class _Access:
    """An operator that must check its indices.

    Attributes
    ----------
    indices : sequence of relax.Var
        The index tensors.
    extents : sequence of int or expression
        The extent that each component addresses.
    tuples : bool
        Whether the components are the last axis of the only tensor.
    wrap_negative : bool
        Whether negative indices count from the end.
    operator : str
        The name of the operator in errors.
    unchecked : callable
        The expression in its place, given the index tensors after the check.
    flattened : bool
        Whether the model has the index in another shape.
    """

    indices: Sequence[Any]
    extents: Sequence[Any]
    tuples: bool
    wrap_negative: bool
    operator: str
    unchecked: Callable[[Sequence[Any]], Any]
    flattened: bool = False

    def is_checked_with(self, other: _Access, same: SameValue) -> bool:
        """Whether one check finds what is bad for both.

        Where negative indices are bad for one of them only, they are: both are computed.
        """
        return (
            self.tuples == other.tuples
            and len(self.indices) == len(other.indices)
            and len(self.extents) == len(other.extents)
            and all(map(same_size, self.extents, other.extents))
            and all(map(same, self.indices, other.indices))
        )

    def check(self, emit: Emit) -> list[Any]:
        """Emit the check, and return the index tensors behind it."""
        indices = list(self.indices)
        # A tensor that is only allocated, and has the extents as sizes.
        shape = relax.ShapeExpr([*self.extents, 0])
        room = emit(relax.op.builtin.alloc_tensor(shape, "int8", 0))
        options: dict[str, Any] = {"wrap_negative": self.wrap_negative, "operator": self.operator}
        if self.flattened:
            read = relax.op.take(room, indices[0], axis=0, mode=self.operator)
        elif self.tuples:
            read = read_ops.gather_nd(room, indices[0], **options)
        else:
            read = read_ops.index(room, indices, range(len(indices)), **options)
        return [emit(expect_indices(read)), *indices[1:]]


@dataclass
class _Group:
    """Operators that one check serves; ``era`` is as in :mod:`share_orders`."""

    era: tuple[int, int]
    first: _Access
    members: list[tuple[Binding, _Access]] = field(default_factory=list)
    _checked: list[Any] | None = None

    @property
    def strictest(self) -> _Access:
        """The first one, which takes no negative indices if any does not."""
        strict = (each for _, each in self.members if not each.wrap_negative)
        found = next(strict, self.first)
        return replace(found, indices=self.first.indices)

    def unchecked(self, access: _Access, emit: Emit) -> Any:
        """An operator behind the check, which is emitted in front of the first of them."""
        if self._checked is None:
            self._checked = self.strictest.check(emit)
        return access.unchecked(self._checked)


def _shared(mod: tvm.IRModule, name: str, function: relax.Function) -> relax.Function | None:
    """The function with shared checks, or ``None`` if there are none to share."""
    groups = [group for group in _groups(function) if len(group.members) > 1]
    if not groups:
        return None
    for group in groups:
        first, *others = (binding.var.name for binding, _ in group.members)
        note("share_checks", f"{name}.{first}", f"is checked together with {', '.join(others)}")
    changes = {
        binding.var: partial(group.unchecked, access)
        for group in groups
        for binding, access in group.members
    }
    return with_values(mod, function, changes)


def _groups(function: relax.Function) -> list[_Group]:
    groups: list[_Group] = []
    accesses = list(_accesses(function))
    if len(accesses) < 2:
        return []
    same = SameValue(Definitions.of(function).values)
    for era, binding, access in accesses:
        for group in groups:
            if group.era == era and access.is_checked_with(group.first, same):
                break
        else:
            group = _Group(era, access)
            groups.append(group)
        group.members.append((binding, access))
    return groups


def _accesses(function: relax.Function) -> Iterator[tuple[tuple[int, int], Binding, _Access]]:
    """What checks indices in dataflow blocks, with the block and how many bindings have written."""
    writes = 0
    for binding in Bindings(function):
        if binding.fused and isinstance(binding.value, relax.Call):
            access = _access(binding.value)
            if access is not None and all(_is_plain(index) for index in access.indices):
                yield (binding.fused, writes), binding, access
        writes += may_write(binding.value)


def _is_plain(index: Any) -> bool:
    """Whether an index is a variable of a known shape on the usual device."""
    known = isinstance(index, relax.Var) and static_shape(index) is not None
    return known and index.ty.vdevice is None


def _access(call: relax.Call) -> _Access | None:
    """What a call checks; ``None`` if it checks no indices."""
    try:
        if is_scatter(call):
            return _of_scatter(ScatterCall.from_call(call))
        if is_read(call):
            return _of_read(call, lambda indices, unchecked: unchecked)
        if operator_of(call) == EXPECT_INDICES:
            return _of_read(read_of_expected(call), lambda indices, unchecked: indices[0])
        return _of_order(call) if is_order(call) else None
    except ScatterError:
        # Lowering reports it.
        return None


def _raises(tensor: Any) -> bool:
    """Whether a bad index is an error where a tensor is."""
    _, strategy = strategy_of(tensor)
    return strategy is not None and strategy.backend.bounds_under(current_options()) == "raise"


def _of_scatter(call: ScatterCall) -> _Access | None:
    shape = static_shape(call.data)
    if call.form == COPY_RANGES or not shape or not _raises(call.data):
        return None
    if call.in_range or call.checked or call.in_place or call.ordering or call.leaves_out:
        return None
    axes: Sequence[int] = call.axes
    tuples = call.form == SCATTER_ND
    if tuples:
        components = (static_shape(call.indices[0]) or [None])[-1]
        if not isinstance(components, int | tirx.IntImm) or not 0 < int(components) <= len(shape):
            return None
        axes = range(int(components))
    elif not all(0 <= axis < len(shape) for axis in axes):
        return None
    return _Access(
        indices=call.indices,
        extents=[shape[axis] for axis in axes],
        tuples=tuples,
        wrap_negative=call.wrap_negative,
        operator=call.operator,
        unchecked=lambda indices: call.replace(indices=tuple(indices), checked=True).to_call(),
    )


def _of_read(call: relax.Call, instead: Callable[[Sequence[Any], Any], Any]) -> _Access | None:
    plan = plan_read(call, target_of(call.args[0]), current_options())
    shape = static_shape(call.args[0])
    if plan is None or plan.check is None or shape is None:
        return None
    read = plan.read
    wraps = read.check.wrap_negative

    def unchecked(indices: Sequence[Any]) -> Any:
        taken = own_read(call.args[0], indices, read, wrap_negative=wraps, checked=True)
        return instead(indices, taken)

    return _Access(
        indices=read_ops.index_tensors(call),
        extents=[shape[axis] for axis in read.form.addressed],
        tuples=isinstance(read.form, ByTuples),
        wrap_negative=wraps,
        operator=read.check.operator,
        unchecked=unchecked,
        flattened=read.check.flattened,
    )


def _of_order(call: relax.Call) -> _Access | None:
    index, extents = call.args[0], list(call.args[1].values)
    attrs = call.attrs
    if bool(attrs["in_range"]) or bool(attrs["checked"]) or not _raises(index):
        return None
    wraps, operator = bool(attrs["wrap_negative"]), str(attrs["operator"])

    def unchecked(indices: Sequence[Any]) -> Any:
        return order(
            indices[0],
            extents[0],
            wrap_negative=wraps,
            checked=True,
            ascending=bool(attrs["ascending"]),
            offsets_only=bool(attrs["offsets_only"]),
            operator=operator,
        )

    return _Access([index], extents, False, wraps, operator, unchecked)
