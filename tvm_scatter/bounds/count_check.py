"""The ``raise`` policy for masks: the number of true positions must fit the entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm_scatter.emit.index_check import IndexCheck
from tvm_scatter.ops.shapes import SymbolTable


@dataclass(frozen=True)
class CountCheck(IndexCheck):
    """A check of a count of true positions, written as a check of an index.

    The extent of that index is the number of entries plus one. The index is 0 if the count fits;
    else it is the count plus the extent, which is out of bounds and tells the count.

    Attributes
    ----------
    entries : str
        The name of the entries in errors.
    rule : str
        How many entries there must be, in words.
    """

    entries: str = ""
    rule: str = ""

    @staticmethod
    def of(operator: str, entries: str, rule: str, room: Any, misfit: Any) -> CountCheck:
        """The check of an index tensor, ``misfit``, against the first size of ``room``."""
        shape = SymbolTable().shape(operator, room)
        return CountCheck(
            operator=operator,
            data=room,
            data_shape=shape,
            data_dtype=str(room.ty.dtype),
            indices=[misfit],
            shapes=((1,),),
            extents=shape[:1],
            interleaved=False,
            wrap_negative=False,
            index_dtypes=("int64",),
            entries=entries,
            rule=rule,
        )

    def error(self, status: Any) -> tuple[str, list[Any]]:
        count, entries = status[2] - status[3], status[3] - 1
        return "ValueError", [
            f"{self.operator}: the mask has ",
            count,
            f" true positions, but {self.entries} has ",
            entries,
            f" entries for them; there must be {self.rule}.",
        ]
