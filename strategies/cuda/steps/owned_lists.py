"""The shared memory of a block that lists the updates of its rows, looking through all of them."""

from __future__ import annotations

from typing import Any

from tvm_scatter.problem.sizes import at_least, ceil_div, round_up
from tvm_scatter.strategies.cuda.codegen.constants import device_constant

#: The most rows of a block: a row takes 16 bits, and none of them all ones.
MOST_ROWS = (1 << 16) - 1
_MOST_AHEAD = device_constant("owned_lists", "kIndicesAhead")
#: A found update, and its place in the list.
_ITEM_BYTES = 6
#: Where a row begins, and for each warp how many updates it has met.
_ROW_BYTES, _MET_BYTES = 4, 2


def ahead(items: int, threads: int) -> int:
    """The indices of a thread that are on their way together: as many in each turn."""
    each = at_least(ceil_div(items, threads), 1)
    turns: int = ceil_div(each, _MOST_AHEAD)
    return ceil_div(each, turns)


def shared_bytes(items: Any, rows: Any, threads: int) -> Any:
    """Bytes of the lists of a block with so many rows, given the number of all updates."""
    parts = ceil_div(items, threads) * threads
    met = _MET_BYTES * round_up(rows, 2) * (threads // 32)
    return _ITEM_BYTES * parts + _ROW_BYTES * (rows + 1) + met
