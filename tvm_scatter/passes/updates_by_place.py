"""Lets each place look up its update, where an update is written to places far apart.

``canvas[image, :, y, x] = pillars`` writes each number of a pillar to a line of memory of its own.
A scatter of the pillars' numbers says which pillar each place has. Then the result is read: every
place takes what its pillar has there, or what the data have, and is written once, side by side
with its neighbours. Where the data are one number everywhere, they are never in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import tvm
from tvm import relax

from tvm_scatter.errors import ScatterError
from tvm_scatter.lowering.lower import lower
from tvm_scatter.lowering.target import strategy_of
from tvm_scatter.ops.read_ops import index
from tvm_scatter.ops.scatter_call import ScatterCall, is_scatter
from tvm_scatter.ops.shapes import is_empty
from tvm_scatter.options import current_options

from .analysis.created import fill_value, made_by
from .analysis.definitions import Definitions
from .analysis.overwritable import overwrites
from .entries_of_places import Entries, entries_of
from .functions import Change, Emit, with_values
from .may_overwrite import overwriting_pass
from .normalised_scatters import reshaped
from .places_or_updates import PlacesOrUpdates
from .report import note

_INT32_NUMBERS = 1 << 31


def UpdatesByPlace(in_place: bool = False, donate: Iterable[str] = ()) -> tvm.transform.Pass:
    """The pass.

    Parameters
    ----------
    in_place : bool
        Whether ReuseBuffers runs afterwards. Then a scatter may need no copy as it stands.
    donate : iterable of str
        Names of parameters that the caller gives away.
    """
    return overwriting_pass("UpdatesByPlace", _looked_up, in_place, donate)


def _looked_up(
    mod: tvm.IRModule, name: str, function: relax.Function, donated: Sequence[Any] | None
) -> relax.Function | None:
    """The function whose places look up their updates where that takes less, or ``None``."""
    options = current_options()
    if options.implementation is not None or not options.gather:
        # It is the caller's choice for the scatters as they stand, or reads are kernels apart.
        return None
    definitions = Definitions.of(function)
    found = {
        var: entries
        for var, value in definitions.values.items()
        if is_scatter(value) and (entries := _entries(value, definitions)) is not None
    }
    if not found:
        return None
    overwritten = {} if donated is None else overwrites(function, donated).found
    changes: dict[Any, Change] = {}
    for var, entries in found.items():
        ways = _ways(entries, definitions, var in overwritten)
        if ways is not None and ways.gains:
            note("by_place", f"{name}.{var.name}", str(ways))
            changes[var] = partial(_by_place, entries, ways.fill)
    return with_values(mod, function, changes) if changes else None


def _entries(value: relax.Call, definitions: Definitions) -> Entries | None:
    """The entries of a plain scatter whose elements lie apart; ``None`` of any other."""
    call = ScatterCall.from_call(value)
    if not (call.reduces.is_store and call.is_alone):
        return None
    _, strategy = strategy_of(call.data)
    if strategy is None or not strategy.backend.schedules_reads or call.data.ty.vdevice:
        return None
    entries = entries_of(call, definitions.values)
    if entries is None or not entries.slices or entries.axes[-1] < entries.slices[-1]:
        return None
    if entries.are_counted_anew and strategy.backend.bounds_under(current_options()) == "raise":
        # The error would name another component.
        return None
    # TVM takes a size of 0 in a reshape for that of the operand.
    return None if is_empty(call.data) or 0 in entries.shape_of_entries else entries


def _ways(entries: Entries, definitions: Definitions, overwritten: bool) -> PlacesOrUpdates | None:
    """What it takes either way; ``None`` if the scatter is not valid."""
    target, strategy = strategy_of(entries.call.data)
    assert strategy is not None, "what no strategy takes is no candidate"
    fill = fill_value(made_by(entries.call.data, definitions.values))
    builder = relax.BlockBuilder()

    def typed(value: Any) -> relax.Var:
        return relax.Var("made", builder.normalize(value).ty)

    try:
        problem, of_numbers = (
            lower(call, current_options(), target.kind.name).problem
            for call in (entries.call, _numbered(entries, typed))
        )
    except ScatterError:
        # Lowering reports it.
        return None
    return PlacesOrUpdates(problem, of_numbers, fill, overwritten, target, strategy)


def _numbered(entries: Entries, emit: Emit) -> ScatterCall:
    """The scatter of the entries' numbers to their places. Places without an entry have -1."""
    call, count = entries.call, entries.count
    dtype = "int32" if isinstance(count, int) and count < _INT32_NUMBERS else "int64"
    # The number of the last entry is the greatest.
    last = call.ordered or current_options().deterministic
    numbers = emit(relax.op.arange(0, count, 1, dtype))
    return call.replace(
        data=emit(relax.op.full(entries.places, relax.const(-1, dtype), dtype)),
        indices=entries.index_tensors(emit),
        updates=reshaped(numbers, entries.shape_of_entries, emit),
        axes=tuple(range(len(entries.axes))),
        reduction="max" if last else call.reduction,
        ordered=False,
    )


def _by_place(entries: Entries, fill: Any, emit: Emit) -> relax.Expr:
    """The result, in which every place takes what its entry has there, or else the data."""
    call, shape, axes = entries.call, entries.shape, entries.axes
    numbers = emit(_numbered(entries, emit).to_call())
    zero = relax.const(0, str(numbers.ty.dtype))
    at, front = emit(relax.op.maximum(numbers, zero)), entries.in_front
    # There may be no entries at all. Then not even the first one is read.
    read = index(
        entries.rows(emit),
        [at],
        [len(front)],
        wrap_negative=False,
        checked=True,
        operator=call.operator,
    )
    found = emit(read)
    order = [*front, *axes, *(axis for axis in entries.slices if axis not in front)]
    if order != sorted(order):
        found = emit(
            relax.op.permute_dims(found, [order.index(axis) for axis in range(len(order))])
        )
    along = [size if axis in axes else 1 for axis, size in enumerate(shape)]
    has_one = reshaped(emit(relax.op.greater_equal(numbers, zero)), along, emit)
    return relax.op.where(has_one, found, call.data if fill is None else fill)
