"""A chain of scatters, and the cheapest way to compute it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np
import tvm

from tvm_scatter.lowering.target import strategy_of
from tvm_scatter.ops.scatter_call import CopiedRange
from tvm_scatter.ops.shapes import same_shape, static_shape
from tvm_scatter.options import current_options
from tvm_scatter.passes.analysis.created import fill_value, is_created
from tvm_scatter.passes.analysis.elementwise import is_computed_anew
from tvm_scatter.passes.analysis.known_values import numbers
from tvm_scatter.selection.backend import backend_of

from .normalised_scatters import NormalisedRows, NormalisedScatter

#: The cost of a launch, in bytes that the GPU moves in that time.
LAUNCH_BYTES = 8 << 20
#: The largest number of ranges in one function.
_MOST_RANGES = 256


class Form(Enum):
    """The ways to compute a chain."""

    #: Each scatter by itself, as before.
    APART = "apart"
    #: One copy: each range of the output is read from the data or from the updates written there.
    COPY_RANGES = "copy ranges"
    #: A scatter of update numbers finds the last writer of each row; a selection reads its row.
    SELECT_ROWS = "select rows"
    #: One scatter of the concatenated updates.
    JOIN = "join"


@dataclass(frozen=True)
class Chain:
    """Scatters in the order in which they run, and the variables that they are bound to."""

    scatters: Sequence[NormalisedScatter]
    variables: Sequence[Any]

    @property
    def operator(self) -> str:
        names = list(dict.fromkeys(scatter.call.operator for scatter in self.scatters))
        return f"{len(self.scatters)} x {' and '.join(names)}"

    @cached_property
    def positions(self) -> np.ndarray[Any, Any] | None:
        """The destinations of all updates, or ``None`` if any is unknown at compile time."""
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
        """The ranges to copy from each scatter's updates, without those overwritten later.

        Places count along all axes that any of the scatters indexes, flattened to one. ``None`` if
        destinations are unknown at compile time or there are too many ranges.
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
        """A shape with all axes that any scatter indexes flattened to one."""
        first, last = self.span
        return [*shape[:first], -1, *shape[last + 1 :]]

    @property
    def wrap_negative(self) -> bool:
        """Whether negative indices count from the end, in all scatters alike."""
        return any(scatter.wrap_negative for scatter in self.scatters)

    @property
    def is_unique(self) -> bool:
        """Whether it is known that no two updates share a destination."""
        return self.positions is not None and len(np.unique(self.positions)) == len(self.positions)


def cheapest_form(chain: Chain, overwritten: bool, values: Mapping[Any, Any]) -> Form:
    """The form that moves the fewest bytes; a launch counts as :data:`LAUNCH_BYTES`.

    Parameters
    ----------
    overwritten : bool
        Whether the scatters would overwrite their data if they were not merged.
    values : mapping
        The expression that each variable is bound to.
    """
    if chain.ranges is not None:
        return Form.COPY_RANGES
    first = chain.scatters[0]
    in_order = first.replaces and not chain.is_unique
    if in_order and current_options().implementation is not None:
        # In the implementation that the caller forces, the last write need not win.
        return Form.APART
    sizes = [_bytes(first.data, static_shape(first.data))]
    sizes += [_bytes(scatter.data, scatter.update_shape) for scatter in chain.scatters]
    if None in sizes:
        return Form.JOIN
    data, *parts = (int(size) for size in sizes if size is not None)
    updates, count = sum(parts), len(parts)
    copy = 0 if overwritten else 2 * data
    # Copying the data takes one more launch.
    launches = 1 if overwritten else 2
    joining = 1 + (chain.positions is None)
    # Data that is created here, such as zeros, costs a launch that writes it.
    created = values.get(first.data)
    made = data if is_created(created) else 0
    # What one loop computes is written side by side at once.
    side_by_side = _are_computed_together(chain, values)
    moves, joining = (2, 0) if side_by_side else (4, joining)
    costs = {
        Form.JOIN: made + moves * updates + copy + (joining + launches) * LAUNCH_BYTES,
        Form.APART: made + 2 * updates + count * (copy + launches * LAUNCH_BYTES),
    }
    if in_order:
        # So that the last write wins, a map of destinations to updates is written and read.
        rows = sum(int(scatter.count) for scatter in chain.scatters)
        costs[Form.JOIN] += 16 * (data // max(1, updates // max(1, rows)))
    if _can_select(chain):
        # Data filled with one number need not be read by a selection.
        one_number = fill_value(created) is not None
        moved = data + min(updates, data) if one_number else made + 2 * data
        costs[Form.SELECT_ROWS] = moved + (joining + 2) * LAUNCH_BYTES
    return min(costs, key=lambda form: costs[form])


def _are_computed_together(chain: Chain, values: Mapping[Any, Any]) -> bool:
    """Whether one loop computes all updates and indices, and each update is one number.

    Rows are better computed where a scatter reads them: they take more memory than their indices.
    """
    if not backend_of(strategy_of(chain.scatters[0].data)[0]).is_gpu or not current_options().loops:
        return False
    for scatter in chain.scatters:
        shapes = (static_shape(each) for each in (scatter.call.updates, *scatter.call.indices))
        first, *others = shapes
        if not others or not all(same_shape(first, other) for other in others):
            return False
    tensors = {each for one in chain.scatters for each in (*one.call.indices, one.call.updates)}
    return all(is_computed_anew(each, values) for each in tensors)


def _can_select(chain: Chain) -> bool:
    """Whether the chain overwrites whole rows along one axis on a target that favours gathers."""
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
