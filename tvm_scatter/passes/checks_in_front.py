"""Checks of indices in front of what reads by them, where the reads are no operators any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator

from tvm_scatter.ops.expectations import expect_indices
from tvm_scatter.ops.read_ops import by_index, index_tensors


class Checks:
    """The checks that a mutator has emitted in one block. Others do not see what is bound there."""

    def __init__(self, mutator: PyExprMutator) -> None:
        self._mutator = mutator
        self._known: list[tuple[relax.Call, Any]] = []

    def before(self, leaves: Sequence[Any], reads: Sequence[relax.Call]) -> list[Any]:
        """The leaves of a function that computes some reads, after checks of the indices in them.

        Several reads may have one index; each check takes what the one before it returns.
        """
        checked = list(leaves)
        for read in reads:
            index = index_tensors(read)[0]
            at = next(i for i, leaf in enumerate(leaves) if leaf.same_as(index))
            checked[at] = self._checked(by_index(read, checked[at]))
        return checked

    def _checked(self, read: relax.Call) -> Any:
        """The index of a read after its check. Equal reads of one tensor are checked once."""
        for earlier, result in self._known:
            if tvm_ffi.structural_equal(earlier, read, map_free_vars=False):
                return result
        mutator = self._mutator
        result = mutator.builder_.emit(mutator.visit_expr(expect_indices(read)))
        self._known.append((read, result))
        return result
