"""What follows a scatter, and is computed where the scatter writes its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import tvm
import tvm_ffi
from tvm import relax


@dataclass(frozen=True)
class Epilogue:
    """The result of a scatter as a function of what it would be without this, and of tensors.

    Attributes
    ----------
    function : tvm.tirx.PrimFunc
        Its parameters are the scatter's own result, the leaves, and the result. It stores each
        element of the result once, as one expression of the element at the same place in memory.
        Every symbolic size in it is a size of one of the others.
    leaves : tuple of relax.Expr
        The tensors that it reads besides the scatter's own result.
    """

    function: Any
    leaves: tuple[Any, ...]

    def type_for(self, data: relax.TensorType) -> relax.TensorType:
        """The type of the result, given that of the data."""
        *read, result = self.function.params
        types = [data, *(leaf.ty for leaf in self.leaves)]
        sizes = {
            dim: size
            for buffer, type_ in zip(read, types, strict=True)
            for dim, size in zip(buffer.shape, type_.shape.values, strict=True)
            if isinstance(dim, tvm.ir.Var)
        }
        shape = [
            tvm_ffi.structural_map(dim, (tvm.ir.Var, lambda var: sizes.get(var, var)))
            for dim in result.shape
        ]
        return relax.TensorType(shape, str(result.dtype), data.vdevice)

    @staticmethod
    def from_json(function: str, leaves: Sequence[Any]) -> Epilogue:
        """An epilogue whose function is what :meth:`to_json` returns."""
        return Epilogue(_function(function), tuple(leaves))

    def to_json(self) -> str:
        """The function as text."""
        return str(tvm.ir.save_json(self.function))


@lru_cache(maxsize=64)
def _function(text: str) -> Any:
    return tvm.ir.load_json(text)
