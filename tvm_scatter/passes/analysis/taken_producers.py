"""Finds the operators that scatters can compute themselves, where they read their updates."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_scatter.errors import ScatterError
from tvm_scatter.lowering.added_rows import is_short_sum, is_sum, reason_to_add_apart
from tvm_scatter.lowering.inlined import CALLS, MOVES, PRODUCERS, operands_of
from tvm_scatter.lowering.operands import Given
from tvm_scatter.lowering.plan_read import plan_read
from tvm_scatter.lowering.reads import is_read
from tvm_scatter.lowering.target import strategy_of, target_of
from tvm_scatter.ops.called import CALL_TIR, operator_of
from tvm_scatter.ops.names import INDEX_PUT
from tvm_scatter.ops.read_ops import index_tensors
from tvm_scatter.ops.scatter_call import ScatterCall, is_scatter
from tvm_scatter.ops.shapes import (
    common_shape,
    is_one,
    number_of,
    same_shape,
    same_size,
    static_shape,
)
from tvm_scatter.options import current_options
from tvm_scatter.problem.reductions import DATA_DTYPES
from tvm_scatter.selection.backend import backend_of

from .bindings import Binding, Bindings
from .effects import may_write
from .known_values import numbers
from .row_values import is_better_kept, turns_rows


@dataclass
class TakenProducers:
    """Which scatters compute which operators themselves.

    Attributes
    ----------
    takers : dict
        The variables of the scatters that compute a binding, by the binding's position.
    refused : dict
        For each scatter that computes nothing, why the operator of its updates stays apart.
    checked : list of Binding
        Taken reads whose bad indices must be reported. A check needs the indices in memory.
    """

    bindings: Bindings
    takers: dict[int, set[Any]] = field(default_factory=dict)
    refused: dict[Any, str] = field(default_factory=dict)
    checked: list[Binding] = field(default_factory=list)

    def producers(self, scatter: Any) -> list[Binding]:
        """The bindings that a scatter computes, in the order in which they run."""
        return [self.bindings.all[at] for at in sorted(self.takers) if scatter in self.takers[at]]


def taken_producers(
    bindings: Bindings, scatters: Mapping[Any, Binding], adding: Set[Any]
) -> TakenProducers:
    """Find the producers of the updates of scatters.

    A producer all of whose readers are fused is in no memory, whether they are of one scatter or of
    several: to compute it for each costs less than to write it once and read it for each. A
    producer that others read is computed again where its operands are smaller than its result.

    Parameters
    ----------
    scatters : mapping
        The scatters that can be fused, by variable.
    adding : set
        The variables of those that may add up a few rows themselves.
    """
    found = TakenProducers(bindings)
    readers = bindings.readers()
    bound = {each.var: each for each in bindings}
    gone: set[Any] = set()
    pinned: set[Any] = set()
    repeated: set[Any] = set()
    spread: set[Any] = set()
    places: set[Any] = set()
    for binding in reversed(bindings.all):
        takers: set[Any] = set()
        needed = binding.var in bindings.returned
        computed_anew = False
        read_by = readers.get(binding.var, ())
        if any(_spreads(each, binding.var, spread) for each in read_by):
            spread.add(binding.var)
        for reader in read_by:
            if reader.var in scatters and _reads_as_updates(reader, binding.var):
                takers.add(reader.var)
                continue
            takers |= found.takers.get(reader.at, set())
            needed |= reader.var not in gone
            computed_anew |= reader.var in repeated or _repeats(reader.value, binding.var)
        if not takers:
            continue
        adds = takers <= adding and is_short_sum(binding.value)
        refusal = None if adds else _refusal_of_producer(binding.value)
        if refusal is None:
            refusal = _refusal_there(binding, bindings, [scatters[each] for each in takers])
        if refusal is None and binding.var in pinned:
            refusal = f"{binding.var.name} is checked as an index"
        if refusal is None and binding.var in places and not _reads_safely(binding):
            refusal = f"{binding.var.name} is where another tensor is read"
        if refusal is None and computed_anew and operator_of(binding.value) in CALLS:
            refusal = f"{binding.var.name} would be computed anew for each read"
        if refusal is None and adds and (computed_anew or binding.var in spread):
            refusal = f"{binding.var.name} would be added up anew for each read"
        if refusal is None and adds and len(takers) > 1:
            refusal = f"{binding.var.name} would be added up by each of {len(takers)} scatters"
        if refusal is None and needed and not grows(binding.value):
            refusal = f"{binding.var.name} has other readers"
        if refusal is None and any(turns_rows(binding, scatters[each]) for each in takers):
            refusal = f"{binding.var.name} turns lines into rows"
        if refusal is None and any(is_better_kept(binding, bound, scatters[s]) for s in takers):
            refusal = f"{binding.var.name} is one value for each row"
        if refusal is None:
            found.takers[binding.at] = takers
            operands = operands_of(binding.value)
            if is_read(binding.value):
                places |= set(operands[1:])
                if is_checked(binding.value):
                    found.checked.append(binding)
                    pinned |= set(operands[1:])
            elif binding.var in places:
                places |= set(operands)
            if not needed:
                gone.add(binding.var)
            if computed_anew:
                repeated.add(binding.var)
            continue
        for each in takers:
            if _reads_as_updates(scatters[each], binding.var):
                found.refused[each] = refusal
    return found


def _reads_safely(binding: Binding) -> bool:
    """Whether it may be computed where it says which element of another tensor is read.

    A CPU's compiler takes it that integers never wrap around, also where that is checked. What is
    read from memory has wrapped around already.
    """
    value = binding.value
    if backend_of(target_of(binding.var)).is_gpu or is_read(value):
        return True
    if operator_of(value) == "relax.astype":
        given, made = (str(each.ty.dtype) for each in (value.args[0], binding.var))
        return np.can_cast(given, made, "safe")
    return operator_of(value) in MOVES


def _reads_as_updates(scatter: Binding, var: Any) -> bool:
    """Whether a scatter reads a variable as its updates, and not otherwise as well."""
    call = ScatterCall.from_call(scatter.value)
    others = (call.data, *call.indices, *call.earlier)
    read = any(each.same_as(var) for each in call.stored_updates)
    return read and not any(var.same_as(other) for other in others)


def refusal_of(binding: Binding, bindings: Bindings, takers: list[Binding]) -> str | None:
    """Why a binding must stay apart from its readers; ``None`` if they can compute it."""
    refusal = _refusal_of_operator(binding.value)
    return _refusal_there(binding, bindings, takers) if refusal is None else refusal


def _refusal_of_producer(value: Any) -> str | None:
    """Why no scatter computes what an operator does for its updates; ``None`` if one may."""
    if not is_sum(value):
        return _refusal_of_operator(value)
    return reason_to_add_apart(value) or "with the sum added up they are not computed"


def _refusal_of_operator(value: Any) -> str | None:
    """Why no reader can compute what an operator does; ``None`` if one may."""
    if operator_of(value) in PRODUCERS or is_read(value):
        return None
    if operator_of(value) == CALL_TIR:
        return f"{value.args[0].name_hint} is a function of its own"
    return f"{operator_of(value) or 'what is no operator'} is not computed elementwise"


def _refusal_there(binding: Binding, bindings: Bindings, takers: list[Binding]) -> str | None:
    """Why a binding must stay where it is; ``None`` if its readers can compute it."""
    value = binding.value
    if static_shape(binding.var) is None:
        return f"the shape of {binding.var.name} is unknown"
    backend = backend_of(target_of(binding.var))
    for each in (binding.var, *operands_of(value)):
        if str(each.ty.dtype) in DATA_DTYPES and str(each.ty.dtype) not in backend.fuses:
            return f"{each.ty.dtype} is not computed by scatters there"
    if operator_of(value) in CALLS and backend.fuses_vectors_only:
        return f"{operator_of(value)} is computed faster apart"
    for taker in takers:
        if taker.fused != binding.fused:
            return f"{binding.var.name} is computed in another block"
        if any(may_write(each.value) for each in bindings.all[binding.at : taker.at]):
            return f"a tensor is overwritten between {binding.var.name} and its reader"
    return _refusal_of_read(value) if is_read(value) else None


def _refusal_of_read(call: relax.Call) -> str | None:
    """Why a read by index stays apart; ``None`` if it can be computed elsewhere."""
    try:
        plan = plan_read(call, strategy_of(call.args[0])[0], current_options())
    except ScatterError:
        return "a read is not valid"
    if plan is None:
        return f"{call.op.name} is left to TVM"
    check = plan.read.check
    if not all(isinstance(each, Given) for each in (check.data, *check.indices)):
        return "the sizes of a read must be checked"
    if plan.check is not None and not isinstance(index_tensors(call)[0], relax.Var):
        return "a constant index must be checked"
    return None


def is_checked(call: relax.Call) -> bool:
    """Whether a bad index of a read is an error."""
    plan = plan_read(call, strategy_of(call.args[0])[0], current_options())
    return plan is not None and plan.check is not None


def _repeats(value: Any, data: Any) -> bool:
    """Whether a call may read elements of some data by index more than once in the mean."""
    if not is_read(value) or not value.args[0].same_as(data):
        return False
    sizes = [numbers(static_shape(each)) for each in (value, data)]
    return any(each is None for each in sizes) or _product(sizes[0]) > _product(sizes[1])


def _spreads(reader: Binding, var: Any, spread: Set[Any]) -> bool:
    """Whether several elements of what is read may be computed from one of a variable.

    Parameters
    ----------
    spread : set
        The variables of the readers from whose elements several are computed.
    """
    if is_scatter(reader.value):
        call = ScatterCall.from_call(reader.value)
        return _reads_as_updates(reader, var) and _broadcasts(call)
    if reader.var in spread:
        return True
    if operator_of(reader.value) in MOVES - {"relax.broadcast_to"}:
        return False
    sizes = (
        [size for size in static_shape(each) or [] if not is_one(size)]
        for each in (var, reader.var)
    )
    return not same_shape(*sizes)


def _broadcasts(call: ScatterCall) -> bool:
    """Whether a scatter may read an update more than once: only this form gives it a shape."""
    if call.form != INDEX_PUT:
        return False
    read = (call.data, call.stored_updates[0], *call.indices)
    shapes = [static_shape(each) for each in read]
    if any(shape is None for shape in shapes):
        return True
    data, updates, *indices = (shape or [] for shape in shapes)
    rest = [size for axis, size in enumerate(data) if axis not in call.axes]
    return not same_size(number_of(updates), number_of([*common_shape(indices), *rest]))


def grows(value: Any) -> bool:
    """Whether a call certainly reads fewer bytes than it writes."""
    if is_read(value):
        # Every element that it writes is read, and an index with it.
        return False
    sizes = [numbers(static_shape(each)) for each in (value, *operands_of(value))]
    if any(each is None for each in sizes):
        return False
    made, *read = (
        _product(size) * tvm.DataType(str(each.ty.dtype)).bits
        for size, each in zip(sizes, (value, *operands_of(value)), strict=True)
    )
    return sum(read) < made


def _product(sizes: Any) -> int:
    result = 1
    for size in sizes:
        result *= int(size)
    return result
