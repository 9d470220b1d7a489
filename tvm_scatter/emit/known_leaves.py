"""What is known of the sizes of the tensors that updates are computed from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

#: The most elements of a tensor of which 32 bits hold every position.
_MOST_SHORT = (1 << 31) - 1


@dataclass(frozen=True)
class KnownLeaves:
    """Whether leaves are short, and have elements at all.

    Parameters
    ----------
    are_short : bool
        Whether :meth:`are_known_to_be_short` holds, where sizes are known at run time only.
    """

    are_short: bool = False

    def is_short(self, leaf: Any) -> bool:
        """Whether 32 bits certainly hold every position in a leaf."""
        [size] = leaf.shape
        return int(size) <= _MOST_SHORT if isinstance(size, tirx.IntImm) else self.are_short

    def has_elements(self, leaf: Any) -> bool:
        """Whether a leaf certainly has elements."""
        [size] = leaf.shape
        return int(size) > 0 if isinstance(size, tirx.IntImm) else self.are_short

    @staticmethod
    def are_known_to_be_short(leaves: Any) -> Any:
        """The condition that all leaves have elements, whose positions 32 bits hold."""
        holds: Any = tirx.IntImm("bool", 1)
        for leaf in leaves:
            [size] = leaf.shape
            inside = tirx.And(size > 0, size <= tirx.IntImm("int64", _MOST_SHORT))
            holds = tirx.And(holds, inside)
        return holds


NOTHING_KNOWN = KnownLeaves()
