"""Describes a check of index tensors, for operators that write or read by index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tvm_scatter.problem.signature import Dim

from .mailbox import Findings, Mailbox


@dataclass(frozen=True)
class IndexCheck:
    """The index tensors of a call, and the extents that they must stay within.

    Attributes
    ----------
    operator : str
        What errors call the operator.
    data : relax.Expr
        The tensor that is addressed.
    data_shape : tuple of Dim
        Its shape.
    data_dtype : str
        Its data type.
    indices : list of relax.Expr
        The index tensors as the operator was given them.
    shapes : tuple
        Their shapes.
    extents : tuple of Dim
        The extent that each component addresses.
    interleaved : bool
        Whether the last axis of the single index tensor runs over the components.
    wrap_negative : bool
        Whether negative indices count from the end.
    index_dtypes : tuple of str
        Their data types.
    flattened : bool
        Whether the model has the index tensors in another shape, so that errors give flat
        positions.
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
        """Whether it is known that there are no indices."""
        shapes = [shape[:-1] if self.interleaved else shape for shape in self.shapes]
        return any(0 in shape for shape in shapes)

    def wraps(self, which: int) -> bool:
        """Whether an index tensor may hold negative indices, and they count from the end."""
        return self.wrap_negative and not self.index_dtypes[which].startswith("uint")

    def error(self, status: Any) -> tuple[str, list[Any]]:
        """The error for a bad entry: the exception's name, and the parts of its message.

        Parameters
        ----------
        status : buffer
            The bad entry, with the fields of :data:`~tvm_scatter.emit.mailbox.STATUS`.
        """
        wraps = any(map(self.wraps, range(len(self.indices))))
        lowest = ["[-", status[3], ", "] if wraps else ["[0, "]
        index = status[2]
        if set(self.index_dtypes) == {"uint64"}:
            index = tirx.reinterpret("uint64", index)
        return "IndexError", [
            f"{self.operator}: index ",
            index,
            *self._position(status),
            " is out of bounds for an axis of extent ",
            status[3],
            "; it must be in ",
            *lowest,
            status[3] - 1,
            "].",
        ]

    def _position(self, status: Any) -> list[Any]:
        """The position of the bad index: coordinates if all shapes are known and equal."""
        shapes = {shape[:-1] if self.interleaved else shape for shape in self.shapes}
        shape = shapes.pop()
        parts: list[Any] = [" at "]
        if self.flattened or shapes or not all(isinstance(dim, int) for dim in shape):
            parts += ["flat position ", status[0]]
        else:
            parts.append("position (")
            stride = 1
            coordinates: list[Any] = []
            for dim in reversed(shape):
                coordinates.insert(0, status[0] // stride % max(int(dim), 1))
                stride *= max(int(dim), 1)
            for coordinate in coordinates:
                parts += [coordinate, ", "]
            parts[-1:] = [")"] if coordinates else ["position ()"]
        if len(self.extents) > 1:
            parts += [" of component ", status[1]]
        return parts


@dataclass(frozen=True)
class CheckOperands:
    """The buffers and sizes inside of a check's function.

    Attributes
    ----------
    check : IndexCheck
        The check.
    indices : list of buffer
        The index tensors, flattened.
    lengths : list
        The number of elements of each.
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
        Returns how many parts the check of a number of entries is split into; the number is
        ``None`` if unknown.
    emit : callable
        Emits the launch. Its arguments are the operands, the findings to fill, and the number of
        the call.
    complete : callable
        Emits a launch that sets the only flag of a mailbox to good when all earlier launches are
        done. Its arguments are the mailbox and the number of the call.
    """

    parts: Callable[[Any], int]
    emit: Callable[[CheckOperands, Findings, Any], None]
    complete: Callable[[Mailbox, Any], None]
