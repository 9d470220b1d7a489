"""Choices that depend on the place of an element alone, as those of concatenations and paddings.

Neighbours are read together where all of them choose the same.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.sym import Analyzer

from tvm_scatter.emit.computed_updates import substitute
from tvm_scatter.emit.expressions import varies


def is_same_along(condition: Any, axis: Any, lanes: int) -> bool:
    """Whether a condition is the same for all elements of each access.

    Parameters
    ----------
    condition : expression
        A condition.
    axis : Var
        The axis along which elements of an access lie.
    lanes : int
        The number of elements of an access, the first of which is at a multiple of this number.
    """
    if lanes == 1 or not varies(condition, axis):
        return True
    if isinstance(condition, tirx.Not):
        return is_same_along(condition.a, axis, lanes)
    if isinstance(condition, tirx.And | tirx.Or):
        return all(is_same_along(part, axis, lanes) for part in (condition.a, condition.b))
    if isinstance(condition, tirx.LE | tirx.LT):
        return _is_same(condition.a, condition.b, isinstance(condition, tirx.LT), axis, lanes)
    if isinstance(condition, tirx.GE | tirx.GT):
        return _is_same(condition.b, condition.a, isinstance(condition, tirx.GT), axis, lanes)
    return False


def _is_same(low: Any, high: Any, less: bool, axis: Any, lanes: int) -> bool:
    """Whether all of an access are on one side of ``low <= high``, or of ``low < high``."""
    if not str(low.ty.dtype).startswith("int"):
        return False
    analyzer = Analyzer()
    # The condition says that this is not negative.
    room = high - low - int(less)
    step = analyzer.simplify(substitute(room, {axis: axis + 1}) - room)
    if not isinstance(step, tirx.IntImm) or abs(int(step)) != 1:
        return False
    first = room if int(step) == 1 else room + 1
    known = analyzer.modular_set(substitute(first, {axis: axis * lanes}))
    return int(known.coeff) % lanes == 0 and int(known.base) % lanes == 0
