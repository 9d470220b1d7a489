"""A chain of scatters, and the form in which it costs least as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np
import tvm

from tvm_scatter.lowering.legalize import strategy_of
from tvm_scatter.ops.scatter_call import CopiedRange
from tvm_scatter.ops.shapes import static_shape
from tvm_scatter.options import current_options
from tvm_scatter.passes.analysis.created import fill_value, is_created
from tvm_scatter.passes.analysis.known_values import numbers
from tvm_scatter.selection.backend import backend_of

from .normalised_scatters import NormalisedRows, NormalisedScatter

#: What a launch costs, in bytes that could have been moved instead.
LAUNCH_BYTES = 8 << 20
#: Ranges that one function tells apart.
_MOST_RANGES = 256


class Form(Enum):
    """What a chain becomes."""

    #: Nothing: its scatters stay apart.
    APART = "apart"
    #: Known ranges, each read from where it comes from.
    COPY_RANGES = "copy ranges"
    #: A scatter of the numbers of the updates, and a selection among them.
    SELECT_ROWS = "select rows"
    #: A scatter of all updates, put end to end.
    JOIN = "join"


@dataclass(frozen=True)
class Chain:
    """Scatters in order, and the variables that they are bound to."""

    scatters: Sequence[NormalisedScatter]
    variables: Sequence[Any]

    @property
    def operator(self) -> str:
        names = list(dict.fromkeys(scatter.call.operator for scatter in self.scatters))
        return f"{len(self.scatters)} x {' and '.join(names)}"

    @cached_property
    def positions(self) -> np.ndarray[Any, Any] | None:
        """Where every update goes, if all is known."""
        known = [scatter.positions for scatter in self.scatters if scatter.positions is not None]
        return np.concatenate(known) if len(known) == len(self.scatters) else None

    @property
    def _rows(self) -> list[NormalisedRows]:
        return [scatter for scatter in self.scatters if isinstance(scatter, NormalisedRows)]

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last axis that any of the scatters indexes."""
        axes = [rows.axes for rows in self._rows]
        return min(each[0] for each in axes), max(each[-1] for each in axes)

    @property
    def is_mixed(self) -> bool:
        """Whether the scatters index different axes."""
        return len({rows.axes for rows in self._rows}) > 1

    @cached_property
    def ranges(self) -> list[CopiedRange] | None:
        """What each scatter writes that no later scatter overwrites; ``None`` if it is not known.

        The places are numbers over all axes that are indexed by any.
        """
        if len(self._rows) < len(self.scatters) or not all(rows.replaces for rows in self._rows):
            return None
        found = [rows.positions_over(*self.span) for rows in self._rows]
        known = [positions for positions in found if positions is not None]
        if len(known) < len(found):
            return None
        counts = [len(each) for each in known]
        if not sum(counts):
            return None
        positions = np.concatenate(known)
        sources = np.repeat(np.arange(len(counts)), counts)
        begins = np.concatenate([np.arange(count) for count in counts])
        places, backwards = np.unique(positions[::-1], return_index=True)
        written = len(positions) - 1 - backwards
        sources, begins = sources[written], begins[written]
        steps = [np.diff(numbers) for numbers in (sources, begins, places)]
        broken = (steps[0] != 0) | (steps[1] != 1) | (steps[2] != 1)
        starts = np.concatenate([[0], np.flatnonzero(broken) + 1])
        if len(starts) > _MOST_RANGES:
            return None
        lengths = np.diff([*starts, len(places)])
        columns = (sources[starts], begins[starts], places[starts], lengths)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [CopiedRange(*row) for row in rows]

    def flat(self, shape: Sequence[Any]) -> list[Any]:
        """A shape with one axis in the place of those that are indexed by any."""
        first, last = self.span
        return [*shape[:first], -1, *shape[last + 1 :]]

    @property
    def wrap_negative(self) -> bool:
        """How all scatters take negative indices."""
        return any(scatter.wrap_negative for scatter in self.scatters)

    @property
    def is_unique(self) -> bool:
        """Whether no two updates certainly share a destination."""
        return self.positions is not None and len(np.unique(self.positions)) == len(self.positions)


def cheapest_form(chain: Chain, overwritten: bool, values: Mapping[Any, Any]) -> Form:
    """What moves the fewest bytes, launches counted as bytes.

    Parameters
    ----------
    overwritten : bool
        Whether the scatters, left apart, would be in place.
    values : mapping
        The expression that each variable is bound to.
    """
    if chain.ranges is not None:
        return Form.COPY_RANGES
    first = chain.scatters[0]
    in_order = first.replaces and not chain.is_unique
    if in_order and current_options().implementation is not None:
        # What the caller wants for every scatter need not be one in which the last write wins.
        return Form.APART
    sizes = [_bytes(first.data, static_shape(first.data))]
    sizes += [_bytes(scatter.data, scatter.update_shape) for scatter in chain.scatters]
    if None in sizes:
        return Form.JOIN
    data, *parts = (int(size) for size in sizes if size is not None)
    updates, count = sum(parts), len(parts)
    copy = 0 if overwritten else 2 * data
    # A copy is a launch of its own.
    launches = 1 if overwritten else 2
    joining = 1 + (chain.positions is None)
    # What makes the data anew, such as zeros, is launched before a scatter.
    created = values.get(first.data)
    made = data if is_created(created) else 0
    costs = {
        Form.JOIN: made + 4 * updates + copy + (joining + launches) * LAUNCH_BYTES,
        Form.APART: made + 2 * updates + count * (copy + launches * LAUNCH_BYTES),
    }
    if in_order:
        # The last write must win, and takes a map of the places to be found.
        rows = sum(int(scatter.count) for scatter in chain.scatters)
        costs[Form.JOIN] += 16 * (data // max(1, updates // max(1, rows)))
    if _can_select(chain):
        # A selection needs no data that is one number all over.
        one_number = fill_value(created) is not None
        moved = data + min(updates, data) if one_number else made + 2 * data
        costs[Form.SELECT_ROWS] = moved + (joining + 2) * LAUNCH_BYTES
    return min(costs, key=lambda form: costs[form])


def _can_select(chain: Chain) -> bool:
    """Whether each position along one axis takes a whole update or none, and a GPU selects."""
    first = chain.scatters[0]
    return (
        isinstance(first, NormalisedRows)
        and len(first.axes) == 1
        and first.replaces
        and current_options().implementation is None
        and backend_of(strategy_of(first.data)[0]).gathers_known_writes
    )


def _bytes(tensor: Any, shape: Any) -> int | None:
    static = numbers(shape)
    if static is None:
        return None
    width: int = max(1, tvm.DataType(str(tensor.ty.dtype)).bits // 8)
    return int(np.prod(static, dtype=np.int64)) * width
