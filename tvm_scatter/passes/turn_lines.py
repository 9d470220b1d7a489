"""Turns lines that share an index into rows, where their scatters then take less.

Images whose channels come first scatter along their last axis, with one index for all channels.
Each of its entries moves an element of every channel, from and to places far apart. Turned, so
that the channels of a pixel stand side by side, it moves one row. Two transposes are the price.

Scatters that follow each other are turned together. Where their updates are computed alike, of the
same lines and of other weights, they become one, whose indices and weights stand end to end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import tvm
from tvm import relax

from tvm_scatter.errors import ScatterError
from tvm_scatter.lowering.target import strategy_of
from tvm_scatter.ops.names import INDEX_PUT
from tvm_scatter.ops.scatter_call import ScatterCall, is_scatter
from tvm_scatter.ops.shapes import number_of, plain_shape, same_size
from tvm_scatter.options import current_options

from .analysis.blocks import blocks_of
from .analysis.created import fill_value, made_by
from .analysis.definitions import Definitions
from .analysis.effects import may_write
from .analysis.line_values import Leaf, OfBoth, leaves_in, line_value
from .analysis.overwritable import overwrites
from .emit_rows_of_lines import emit_rows
from .functions import Change, with_values
from .may_overwrite import overwriting_pass
from .normalised_scatters import normalised_rows
from .report import note
from .rows_of_lines import Lines, RowsOfLines, lines_of

#: The most scatters that become one: more would need more memory for what stands end to end.
_MOST_SCATTERS = 16


def TurnLines(in_place: bool = False, donate: Iterable[str] = ()) -> tvm.transform.Pass:
    """The pass.

    Parameters
    ----------
    in_place : bool
        Whether ReuseBuffers runs afterwards. Then scatters may need no copies as they stand.
    donate : iterable of str
        Names of parameters that the caller gives away.
    """
    return overwriting_pass("TurnLines", _turned_function, in_place, donate)


def _turned_function(
    mod: tvm.IRModule, name: str, function: relax.Function, donated: Sequence[Any] | None
) -> Any:
    """The function whose lines are turned, or ``None`` if none are."""
    if current_options().implementation is not None:
        # It is the caller's choice for the scatters as they stand.
        return None
    definitions = Definitions.of(function)
    found = [chain for bindings in blocks_of(function) for chain in _chains(bindings, definitions)]
    if not found:
        return None
    overwritten = {} if donated is None else overwrites(function, donated).found
    turned: dict[Any, Change] = {}
    for scatters, variables in found:
        data = scatters[0].scatter.data
        target, strategy = strategy_of(data)
        assert strategy is not None, "what no strategy takes is no candidate"
        fill = fill_value(made_by(data, definitions.values))
        rows = RowsOfLines(scatters, variables, fill, variables[0] in overwritten, target, strategy)
        if rows.gains:
            note("turn_lines", f"{name}.{variables[-1].name}", str(rows))
            turned[variables[-1]] = partial(emit_rows, rows)
    return with_values(mod, function, turned) if turned else None


def _chains(
    bindings: Sequence[Any], definitions: Definitions
) -> list[tuple[list[Lines], list[Any]]]:
    """The scatters into lines of a block, those together that follow each other."""
    tails: dict[Any, tuple[list[Lines], list[Any]]] = {}
    found: list[tuple[list[Lines], list[Any]]] = []
    for binding in bindings:
        value = getattr(binding, "value", None)
        if may_write(value):
            # What is turned must not be read behind a write.
            tails.clear()
            continue
        each = _lines(binding.var, value, definitions) if is_scatter(value) else None
        if each is None:
            continue
        before = tails.pop(each.scatter.data, None)
        if (
            before is not None
            and definitions.uses[each.scatter.data] == 1
            and len(before[0]) < _MOST_SCATTERS
            and before[0][-1].scatter.axes == each.scatter.axes
        ):
            before[0].append(each)
            before[1].append(binding.var)
            tails[binding.var] = before
        else:
            chain = [each], [binding.var]
            tails[binding.var] = chain
            found.append(chain)
    return found


def _lines(var: Any, value: Any, definitions: Definitions) -> Lines | None:
    """A scatter into lines that share an index; ``None`` if it is none."""
    call = ScatterCall.from_call(value)
    if call.form != INDEX_PUT or not call.is_alone:
        return None
    target, strategy = strategy_of(call.data)
    if strategy is None or call.data.ty.vdevice is not None:
        return None
    scatter = normalised_rows(call, definitions.values)
    try:
        problem = None if scatter is None else lines_of(scatter, target)
    except ScatterError:
        # Lowering reports it.
        return None
    if scatter is None or problem is None:
        return None
    updates, lines = call.updates, problem.batch.constant
    elements = number_of(plain_shape(updates) or ())
    if not same_size(elements, lines * scatter.count):
        # They are broadcast; nothing is known of what their axes are.
        return None

    def computed(tensor: Any) -> bool:
        value = definitions.values.get(tensor)
        # A part of a tuple is computed by who makes the tuple.
        return isinstance(value, relax.Call) and definitions.reaches_all(value.args, var)

    found = line_value(updates, lines, definitions.values, computed)
    both = {id(leaf.tensor) for leaf in leaves_in(found) if isinstance(leaf, OfBoth)}
    if len(both) > 1:
        # One transpose computes them all on its way.
        found = _whole(updates)
    return Lines(scatter, found, problem)


def _whole(updates: Any) -> Leaf:
    return OfBoth(updates, plain_shape(updates) or ())
