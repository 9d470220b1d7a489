"""Values that stand side by side in memory: some for each item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm.tirx.script import builder as T

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.sizes import round_up

from . import loops
from .values import convert

#: Records are so many that each buffer of them has whole elements of any width.
_ROUNDED_TO = 64


@dataclass(frozen=True)
class Field:
    """Where the values of one kind stand: one in so many elements of a buffer.

    Attributes
    ----------
    buffer : buffer
        Its data type is the one in which they are kept.
    step : int
        How many elements of the buffer lie between two values.
    first : int
        The element that holds the first one.
    """

    buffer: Any
    step: int = 1
    first: int = 0

    def store(self, i: Any, value: Any) -> None:
        """Emit the store of the i-th value."""
        kept = convert(value, str(self.buffer.dtype))
        T.buffer_store(self.buffer, kept, [i * self.step + self.first])

    def load(self, i: Any, dtype: str) -> Any:
        """The i-th value, in a data type."""
        return convert(self.buffer[i * self.step + self.first], dtype)


def record_bytes(dtypes: Sequence[str]) -> int:
    """Bytes of a record: a power of two, so that none reaches into two lines of the cache."""
    return 1 << (sum(map(item_bytes, dtypes)) - 1).bit_length()


def records_bytes(count: Any, each: int) -> Any:
    """Bytes of a workspace for some records."""
    return round_up(count, _ROUNDED_TO) * each


def records(operands: Operands, offset: Any, count: Any, dtypes: Sequence[str]) -> list[Field]:
    """A field for each data type, so many bytes behind the begin of the workspace.

    Wider ones come first in a record, so that each begins at a multiple of its width.
    """
    widths = [item_bytes(dtype) for dtype in dtypes]
    each, begin = record_bytes(dtypes), 0
    fields: dict[int, Field] = {}
    for at in sorted(range(len(widths)), key=lambda at: -widths[at]):
        step = each // widths[at]
        size = round_up(count, _ROUNDED_TO) * step
        buffer = loops.workspace_view(operands, offset, size, dtypes[at])
        fields[at] = Field(buffer, step, begin // widths[at])
        begin += widths[at]
    return [fields[at] for at in range(len(widths))]
