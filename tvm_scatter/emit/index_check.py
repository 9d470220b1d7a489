"""What is checked of index tensors, whether an operator writes by them or reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm_scatter.problem.signature import Dim

from .mailbox import Findings, Mailbox


@dataclass(frozen=True)
class IndexCheck:
    """Index tensors to be checked against the extents of the data that they address.

    Attributes
    ----------
    operator : str
        What errors call the operator.
    data : relax.Expr
        What is addressed.
    data_shape : tuple of Dim
        Its shape.
    data_dtype : str
        Its type.
    indices : list of relax.Expr
        As the operator was given them.
    shapes : tuple
        Their shapes.
    extents : tuple of Dim
        The extent that each component addresses.
    interleaved : bool
        Whether the last axis of the single index tensor runs over the components.
    wrap_negative : bool
        Whether negative indices count from the end.
    index_dtypes : tuple of str
        Their types.
    flattened : bool
        Whether the model has them in another shape.
    """

    operator: str
    data: Any
    data_shape: tuple[Dim, ...]
    data_dtype: str
    indices: Sequence[Any]
    shapes: tuple[tuple[Dim, ...], ...]
    extents: tuple[Dim, ...]
    interleaved: bool
    wrap_negative: bool
    index_dtypes: tuple[str, ...]
    flattened: bool = False

    @property
    def has_no_entries(self) -> bool:
        """Whether there certainly is no index."""
        shapes = [shape[:-1] if self.interleaved else shape for shape in self.shapes]
        return any(0 in shape for shape in shapes)


@dataclass(frozen=True)
class CheckOperands:
    """What a bounds check works on.

    Attributes
    ----------
    check : IndexCheck
        What is checked.
    indices : list of buffer
        Flat index tensors.
    lengths : list
        Their numbers of elements.
    extents : list
        The extent that each component addresses.
    """

    check: IndexCheck
    indices: Sequence[Any]
    lengths: Sequence[Any]
    extents: Sequence[Any]

    @property
    def components(self) -> list[tuple[int, int, int]]:
        """For each component: its index buffer, and the stride and offset of its entries there."""
        count = len(self.extents)
        if self.check.interleaved:
            return [(0, count, j) for j in range(count)]
        return [(j, 1, 0) for j in range(count)]


@dataclass(frozen=True)
class DeviceCheck:
    """How a device checks indices.

    Attributes
    ----------
    parts : callable
        In how many parts it checks a number of entries, which is symbolic or an ``int``.
    emit : callable
        Adds the launch. It is given the operands, the findings to fill, and the number of the call.
    complete : callable
        Adds a launch that raises the only flag, good, once all that was launched before is done. It
        is given the mailbox and the number of the call.
    """

    parts: Callable[[Any], int]
    emit: Callable[[CheckOperands, Findings, Any], None]
    complete: Callable[[Mailbox, Any], None]
