"""How long the expression of an element becomes where what it is computed from stands in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx

from .computed_updates import parts_of
from .expressions import choices

#: The most choices by what was chosen, one in another. From one to the next TVM compiles for three
#: to ten times as long: five maxima of maxima take it 3 seconds, of bfloat16 half a minute.
MOST_CHOICES = 4
#: The most nodes of an expression. In it, a value that is used twice is written twice. For booleans
#: TVM takes longer: ten seconds for 1500 of them.
MOST_NODES, _NODES_OF_BOOLEAN = 2000, 4
#: What a coordinate becomes in a kernel: remainders and quotients by sizes that are not known.
_NODES_OF_COORDINATE = 12


@dataclass(frozen=True)
class ExpressionLength:
    """How long the expression of an element of a tensor is. By default, it is read from memory.

    Attributes
    ----------
    nodes : int
        Its nodes, but for those of coordinates of elements that are read as they are.
    choices : int
        Its choices, one by the other.
    coordinates : tuple of int
        How often each coordinate of the element stands in it; none if each does once.
    varies : bool
        Whether a size of the tensor is known at run time only.
    """

    nodes: int = 1
    choices: int = 0
    coordinates: tuple[int, ...] = ()
    varies: bool = False

    def is_too_long(self, most_choices: int = MOST_CHOICES) -> bool:
        """Whether TVM would take long for it."""
        return self.has_many_nodes or self.choices > most_choices

    @property
    def has_many_nodes(self) -> bool:
        """Whether it has so many nodes that TVM would take long for it."""
        of_coordinates = _NODES_OF_COORDINATE * sum(self.coordinates) if self.varies else 0
        return self.nodes + of_coordinates > MOST_NODES

    @classmethod
    def of(cls, store: tirx.BufferStore, known: Mapping[Any, ExpressionLength]) -> ExpressionLength:
        """The length of what is stored.

        Parameters
        ----------
        known : mapping of buffer to ExpressionLength
            Those of elements that are computed in the same expression.
        """
        axes = list(store.indices)
        count, *coordinates = _counts(store.value, axes, known)
        chosen = choices(store.value, {buffer: each.choices for buffer, each in known.items()})
        varies = not all(isinstance(size, tirx.IntImm) for size in store.buffer.shape)
        return cls(count, chosen, tuple(coordinates), varies)


def _counts(value: Any, axes: list[Any], known: Mapping[Any, ExpressionLength]) -> list[int]:
    """The nodes of an expression, and how often each axis stands in it."""
    if not isinstance(value, tvm.ir.TensorLoad):
        size = _NODES_OF_BOOLEAN if _is_boolean(value) else 1
        own = [size, *(int(value.same_as(axis)) for axis in axes)]
        return _sum([own, *(_counts(part, axes, known) for part in parts_of(value))])
    read = known.get(value.source, ExpressionLength())
    times = read.coordinates or (1,) * len(value.indices)
    result = [read.nodes, *(0 for _ in axes)]
    for index, often in zip(value.indices, times, strict=True):
        count, *coordinates = _counts(index, axes, known)
        # The index takes the place of a coordinate, which is counted.
        each = [count - 1, *coordinates]
        result = _sum([result, [often * number for number in each]])
    return result


def _sum(rows: list[list[int]]) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)]


def _is_boolean(value: Any) -> bool:
    return isinstance(value.ty, tvm.ir.PrimType) and value.ty.dtype == "bool"
