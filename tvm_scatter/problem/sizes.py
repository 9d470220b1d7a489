"""The sizes of a problem as numbers or as expressions, so that one formula serves both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from .scatter_problem import ScatterProblem
from .symbolic_size import SymbolicSize


@dataclass(frozen=True)
class Sizes:
    """The sizes that :class:`~tvm_scatter.problem.ScatterProblem` defines, evaluated.

    Each field is an ``int`` if the problem is static, else an int64 expression. Of several sizes
    together it is an array of float64 numbers, unless all have the same.
    """

    batch: Any
    extent: Any
    slice: Any
    count: Any
    extents: tuple[Any, ...]
    slab: Any
    data_size: Any
    update_size: Any
    items: Any
    width: Any
    destinations: Any

    @staticmethod
    def of(problem: ScatterProblem, symbols: Mapping[str, Any] | None = None) -> Sizes:
        """Evaluate the sizes of ``problem``, given a value for each of its symbols."""
        values = symbols or {}

        def value(extent: SymbolicSize) -> Any:
            return extent.value(values)

        return Sizes(
            batch=value(problem.batch),
            extent=value(problem.extent),
            slice=value(problem.slice),
            count=value(problem.count),
            extents=tuple(value(extent) for extent in problem.extents),
            slab=value(problem.slab),
            data_size=value(problem.data_size),
            update_size=value(problem.update_size),
            items=value(problem.items),
            width=value(problem.width),
            destinations=value(problem.destinations),
        )

    @staticmethod
    def together(several: Sequence[Sizes]) -> Sizes:
        """Sizes that are numbers, as one whose fields have those of each in their order."""

        def joined(values: Any) -> Any:
            if isinstance(values[0], tuple):
                return tuple(joined(part) for part in zip(*values, strict=True))
            return values[0] if len(set(values)) == 1 else np.array(values, np.float64)

        names = (field.name for field in fields(Sizes))
        return Sizes(**{name: joined([getattr(one, name) for one in several]) for name in names})


def ceil_div(numerator: Any, denominator: Any) -> Any:
    """Division rounded up, for numbers and expressions that are not negative."""
    return (numerator + (denominator - 1)) // denominator


def round_up(value: Any, multiple: int) -> Any:
    """The smallest multiple of ``multiple`` that is not less than ``value``."""
    return ceil_div(value, multiple) * multiple


def power_of_two(exponent: Any) -> Any:
    """Two to the power of a number or expression that is not negative."""
    if isinstance(exponent, int):
        return 1 << exponent
    from tvm import tirx

    return tirx.shift_left(tirx.IntImm("int64", 1), exponent)


def at_least(value: Any, least: Any) -> Any:
    """The larger of two numbers or expressions."""
    if isinstance(value, int) and isinstance(least, int):
        return max(value, least)
    from tvm import tirx

    return tirx.max(*map(as_expression, (value, least)))


def at_most(value: Any, most: Any) -> Any:
    """The smaller of two numbers or expressions."""
    if isinstance(value, int) and isinstance(most, int):
        return min(value, most)
    from tvm import tirx

    return tirx.min(*map(as_expression, (value, most)))


def as_expression(size: Any) -> Any:
    """A size as an expression of 64 bits: of plain numbers TVM takes 32."""
    from tvm import tirx

    return tirx.IntImm("int64", size) if isinstance(size, int) else size
