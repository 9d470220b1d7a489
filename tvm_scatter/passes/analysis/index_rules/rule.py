"""What a rule is: from a call, and what is known of its operands, to what its result is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tvm import relax

from tvm_scatter.ops.shapes import static_shape
from tvm_scatter.passes.analysis.index_facts import IndexFacts
from tvm_scatter.passes.analysis.integer_ranges import Range, Ranges, Unproven, number


class Known(Protocol):
    """What is known of the values of a function so far."""

    @property
    def ranges(self) -> Ranges:
        """Computes with ranges."""

    def of(self, tensor: Any) -> IndexFacts:
        """What is known of a tensor. Raises :class:`Unproven` if it is none of integers."""

    def fields(self, value: Any) -> Sequence[Any]:
        """The fields of a tuple, as :meth:`of` takes them."""


#: A rule takes the call. For several results it returns the facts of each, or ``None``.
Rule = Callable[[relax.Call, Known], IndexFacts | Sequence[IndexFacts | None]]


def shape_of(tensor: Any) -> list[Any]:
    """The sizes of a tensor. Raises :class:`Unproven` if they are unknown."""
    shape = static_shape(tensor)
    if shape is None:
        raise Unproven
    return shape


def numbers_of(values: Any) -> list[Any]:
    """The fields of a tuple, as ranges hold them. Raises :class:`Unproven` if it is none."""
    if not isinstance(values, relax.Tuple):
        raise Unproven
    return [number(each) for each in values.fields]


def exactly(value: Any) -> Range:
    """The range of one number."""
    return Range(value, value)


def below(size: Any, known: Known) -> IndexFacts:
    """Numbers from 0 to before a size."""
    return IndexFacts(Range(0, known.ranges.add(exactly(size), exactly(-1)).low))
