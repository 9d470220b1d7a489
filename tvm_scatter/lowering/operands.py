"""Descriptions of a function's operands. A block builder emits them later.

Each operand knows the type ``ty`` of the Relax expression that will be emitted for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_scatter.bounds.size_check import SizeCheck, check_sizes
from tvm_scatter.emit.index_check import IndexCheck
from tvm_scatter.ops.fused_updates import FusedUpdates
from tvm_scatter.ops.scatter_call import CopiedRange


@dataclass(frozen=True)
class Given:
    """A tensor argument of the call."""

    expression: Any

    @property
    def ty(self) -> relax.TensorType:
        """The tensor's type."""
        return self.expression.ty

    @property
    def is_constant(self) -> bool:
        """Whether the tensor is a constant."""
        return isinstance(self.expression, tvm.ir.GenericConst)

    def emit(self, _bb: relax.BlockBuilder, _made: Made) -> relax.Expr:
        """The tensor itself."""
        return self.expression


@dataclass(frozen=True)
class Field:
    """A field of a tuple argument of the call."""

    tuple: Any
    at: int
    is_constant = False

    @property
    def ty(self) -> relax.TensorType:
        """The tensor's type."""
        return self.tuple.ty.fields[self.at]

    def emit(self, bb: relax.BlockBuilder, _made: Made) -> relax.Expr:
        """A variable that holds the field."""
        return bb.emit(relax.TupleGetItem(self.tuple, self.at))


@dataclass(frozen=True)
class KnownPositions:
    """An ``int64`` constant: the positions that ranges are copied to, concatenated."""

    ranges: tuple[CopiedRange, ...]
    is_constant = True

    @property
    def ty(self) -> relax.TensorType:
        """The type of the constant."""
        return relax.TensorType([sum(each.length for each in self.ranges)], "int64")

    def emit(self, bb: relax.BlockBuilder, _made: Made) -> relax.Expr:
        """The constant."""
        positions = [np.arange(each.place, each.place + each.length) for each in self.ranges]
        return bb.normalize(relax.const(np.concatenate(positions), "int64"))


@dataclass(frozen=True)
class Computed:
    """A tensor that a function of tensor expressions computes from other operands.

    Attributes
    ----------
    compute : callable
        Takes the sources and the sizes, and returns the tensor. Two that compute the same compare
        equal.
    sources : tuple of Operand
        The operands that it reads.
    sizes : tuple of tuple
        Shapes, passed so that symbolic sizes become parameters of the function.
    ty : relax.TensorType
        The type of the result.
    hint : str
        The name of the function.
    """

    compute: Callable[..., Any]
    sources: tuple[Operand, ...]
    sizes: tuple[tuple[Any, ...], ...]
    ty: relax.TensorType
    hint: str
    is_constant = False

    def emit(self, bb: relax.BlockBuilder, made: Made) -> relax.Expr:
        """A call of the function."""
        sources = [made.of(source) for source in self.sources]
        sizes = map(list, self.sizes)
        return bb.emit_te(self.compute, sources, *sizes, primfunc_name_hint=self.hint)


@dataclass(frozen=True)
class Checked:
    """An operand that a size check has returned. Its readers run after the check.

    Attributes
    ----------
    check : SizeCheck
        The check. Its tensors are operands.
    name : str
        The name of the operand among the tensors of the check.
    """

    check: SizeCheck
    name: str
    is_constant = False

    @property
    def ty(self) -> relax.TensorType:
        """The operand's type, which the check does not change."""
        return self.check.tensors[self.name].ty

    def emit(self, _bb: relax.BlockBuilder, made: Made) -> relax.Expr:
        """The tensor that the check returns for the operand."""
        return made.after(self.check)[self.name]


@dataclass(frozen=True)
class Fused:
    """Updates that the scatter computes where it reads them.

    Attributes
    ----------
    updates : FusedUpdates
        The function that computes them, and its operands.
    """

    updates: FusedUpdates
    is_constant = False

    @property
    def ty(self) -> relax.TensorType:
        """The type of the updates."""
        return self.updates.ty

    def emit(self, bb: relax.BlockBuilder, _made: Made) -> relax.Expr:
        """A call that computes all updates into a tensor, for readers that need one."""
        func = bb.add_func(self.updates.function, "updates")
        return bb.emit(relax.op.call_tir(func, list(self.updates.leaves), self.ty))


Operand = Given | Field | KnownPositions | Computed | Checked | Fused


class Made:
    """The Relax expressions of operands. Each is emitted once, when it is first needed."""

    def __init__(self, bb: relax.BlockBuilder) -> None:
        self._bb = bb
        # The keys are identities. The objects are kept alive, because a later object could get the
        # identity of one that is gone.
        self._made: dict[int, tuple[Any, Any]] = {}

    def of(self, operand: Operand) -> relax.Expr:
        """The expression of an operand."""
        return self._once(operand, lambda: operand.emit(self._bb, self))

    def after(self, check: SizeCheck) -> dict[str, relax.Expr]:
        """The tensors that a size check returns, by name."""
        return self._once(check, lambda: self._checked(check))

    def index_check(self, check: IndexCheck) -> IndexCheck:
        """The same check, with the operands replaced by their expressions."""
        indices = [self.of(index) for index in check.indices]
        return replace(check, data=self.of(check.data), indices=indices)

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        if id(key) not in self._made:
            self._made[id(key)] = key, make()
        return self._made[id(key)][1]

    def _checked(self, check: SizeCheck) -> dict[str, relax.Expr]:
        tensors = {name: self.of(operand) for name, operand in check.tensors.items()}
        results = check_sizes(self._bb, replace(check, tensors=tensors))
        return dict(zip(check.returned, results, strict=True))
