"""Describes how a kind of target lists the true positions of a mask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Compaction:
    """A compaction in two functions: one counts, and once the size is known, one writes.

    Attributes
    ----------
    tile : int
        The number of entries of the mask that are counted together.
    count : callable
        Emits the count. Its arguments are the mask, the number of its entries, a buffer of one
        int64 for each tile and one more, and a buffer of one int64. It fills the first with the
        number of true entries before each tile and in all, and the second with the latter.
    write : callable
        Emits the result. Its arguments are the mask, the number of its entries, the filled buffer,
        and the buffer of positions.
    """

    tile: int
    count: Callable[[Any, Any, Any, Any], None]
    write: Callable[[Any, Any, Any, Any], None]
