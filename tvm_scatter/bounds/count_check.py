"""The ``raise`` policy for the true positions of a mask: is there an entry for each?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm_scatter.emit.index_check import IndexCheck
from tvm_scatter.ops.shapes import SymbolTable


@dataclass(frozen=True)
class CountCheck(IndexCheck):
    """A count, checked as an index whose extent is one more than there are entries.

    The index is 0 if the count fits, and the sum of both if not.

    Attributes
    ----------
    entries : str
        What errors call the entries.
    rule : str
        How many there must be, in words.
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
