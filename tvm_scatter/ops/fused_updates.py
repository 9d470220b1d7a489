"""Updates that a scatter computes itself, from the tensors that they depend on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

#: The attribute of a function that computes nothing: its leaves are the updates and their logits.
PLAIN = "tvm_scatter.plain"


@dataclass(frozen=True)
class FusedUpdates:
    """Updates that exist only as a function of other tensors.

    Attributes
    ----------
    function : tvm.tirx.PrimFunc
        Computes the updates from the leaves, which are its first parameters. It has one expression
        for each element, and every symbolic size in it is a size of a leaf. A parameter behind the
        updates, of the same shape, is their logits: then each update is weighted by the softmax of
        the logits of its destination. Behind it may be terms, of the same shape, and sums: a logit
        then depends on the sum of the terms of all elements that have it, which it reads there.
    leaves : tuple of relax.Expr
        The tensors that it reads.
    """

    function: Any
    leaves: tuple[Any, ...]

    @property
    def has_logits(self) -> bool:
        """Whether each update has a logit."""
        return len(self.function.params) > len(self.leaves) + 1

    @property
    def sums_logits(self) -> bool:
        """Whether the logits are computed from sums along the rows of the updates."""
        return len(self.function.params) > len(self.leaves) + 2

    @property
    def are_stored(self) -> bool:
        """Whether the leaves are the updates and the logits themselves."""
        return PLAIN in (self.function.attrs or {})

    @property
    def ty(self) -> relax.TensorType:
        """The type that the updates would have as a tensor."""
        leaves = self.function.params[: len(self.leaves)]
        updates = self.function.params[len(self.leaves)]
        sizes = {
            dim: size
            for buffer, leaf in zip(leaves, self.leaves, strict=True)
            for dim, size in zip(buffer.shape, leaf.ty.shape.values, strict=True)
            if isinstance(dim, tvm.ir.Var)
        }
        shape = [
            tvm_ffi.structural_map(dim, (tvm.ir.Var, lambda var: sizes.get(var, var)))
            for dim in updates.shape
        ]
        return relax.TensorType(shape, str(updates.dtype), self.leaves[0].ty.vdevice)

    @staticmethod
    def from_json(function: str, leaves: Sequence[Any]) -> FusedUpdates:
        """Updates whose function is what :meth:`to_json` returns."""
        return FusedUpdates(_function(function), tuple(leaves))

    def to_json(self) -> str:
        """The function as text."""
        return str(tvm.ir.save_json(self.function))

    def with_leaves(self, leaves: Sequence[Any]) -> FusedUpdates:
        """The same function of other tensors."""
        return FusedUpdates(self.function, tuple(leaves))


@lru_cache(maxsize=64)
def _function(text: str) -> Any:
    return tvm.ir.load_json(text)
