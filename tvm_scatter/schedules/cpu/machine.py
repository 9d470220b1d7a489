"""What the schedules know of a CPU: its vectors, its registers, and when threads are worth it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm.target import Target
from tvm.target.codegen import target_has_features

#: Steps of a loop below which waking other threads takes longer than the loop.
_FEWEST_STEPS = 1 << 14


@dataclass(frozen=True)
class Registers:
    """The vector registers of a CPU.

    Attributes
    ----------
    bits : int
        The width of one.
    rows : int
        Rows of a product's tile of two vectors that they hold, beside its operands.
    """

    bits: int
    rows: int

    def lanes(self, bits: int) -> int:
        """How many numbers of this many bits a register holds."""
        return max(self.bits // bits, 1)


def registers(target: Target) -> Registers:
    """The registers of the target; those that every CPU has where it names no ``mcpu``."""
    if target_has_features("avx512f", target):
        return Registers(bits=512, rows=8)
    if target_has_features("avx2", target):
        return Registers(bits=256, rows=4)
    return Registers(bits=128, rows=4)


def is_worth_threads(sizes: Iterable[Any]) -> bool:
    """Whether loops of these sizes, each a number or symbolic, take long enough."""
    known = list(sizes)
    return not all(isinstance(size, int) for size in known) or prod(known) >= _FEWEST_STEPS
