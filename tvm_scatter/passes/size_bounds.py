"""Forgets upper bounds of sizes that no memory could hold.

PyTorch bounds a size by the largest integer where it must equal a number that depends on values,
such as that of the true entries of a mask. TVM's memory planner multiplies bounds by the bytes of a
row, and stops where the product is no integer of 64 bits.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from .analysis.greatest_sizes import BOUNDS, greatest_sizes
from .functions import with_changes

#: A tensor with two such axes, and a thousand bytes for each pair, can still be counted in bytes.
_MOST = 1 << 26


def SizeBounds() -> tvm.transform.Pass:
    """The pass. A module without such bounds is left as it is."""

    def forget(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        return with_changes(mod, _bounded)

    return tvm.transform.module_pass(forget, opt_level=0, name="SizeBounds")


def _bounded(_name: Any, function: relax.Function) -> relax.Function | None:
    known = greatest_sizes(function)
    kept = {name: most for name, most in known.items() if most <= _MOST}
    if len(kept) == len(known):
        return None
    return function.with_attr(BOUNDS, kept) if kept else function.without_attr(BOUNDS)
