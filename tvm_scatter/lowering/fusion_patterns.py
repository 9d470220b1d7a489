"""TVM's numbers for functions, which say what they may be fused with."""

from __future__ import annotations

from tvm import tirx

#: The attribute of a function that holds its number.
PATTERN = "op_pattern"
#: A function that computes each element from elements at its own place, or at none.
BROADCAST = 1
#: The last number of functions that compute each element by themselves.
INJECTIVE = 2
#: A reduction: it is fused with what it reads, and with nothing behind it.
REDUCTION = 3
#: A function that only elementwise operators behind it are fused with.
ROOT = 4
#: A function that is fused with nothing.
OPAQUE = 8


def fusion_pattern(function: tirx.PrimFunc, otherwise: int = OPAQUE) -> int:
    """The number of a function; another one if nobody has given it any."""
    return int((function.attrs or {}).get(PATTERN, otherwise))
