"""Operands of a function as data: what each is made of, and how. A block builder makes them later.

An operand has the type ``ty`` that the Relax expression behind it will have.
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
from tvm_scatter.ops.scatter_call import CopiedRange


@dataclass(frozen=True)
class Given:
    """A tensor that the call was given."""

    expression: Any

    @property
    def ty(self) -> relax.TensorType:
        """The tensor's type."""
        return self.expression.ty

    @property
    def is_constant(self) -> bool:
        """Whether its values are known."""
        return isinstance(self.expression, tvm.ir.GenericConst)

    def emit(self, _bb: relax.BlockBuilder, _made: Made) -> relax.Expr:
        """The tensor itself."""
        return self.expression


@dataclass(frozen=True)
class Field:
    """A tensor of a tuple that the call was given."""

    tuple: Any
    at: int
    is_constant = False

    @property
    def ty(self) -> relax.TensorType:
        """The tensor's type."""
        return self.tuple.ty.fields[self.at]

    def emit(self, bb: relax.BlockBuilder, _made: Made) -> relax.Expr:
        """A variable for it."""
        return bb.emit(relax.TupleGetItem(self.tuple, self.at))


@dataclass(frozen=True)
class KnownPositions:
    """The positions that ranges are copied to, one behind the other, as ``int64``."""

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
    """What a function of tensor expressions makes of other operands.

    Attributes
    ----------
    compute : callable
        Given the tensors of the sources, and the sizes, it returns the tensor. Two of one idea
        compare equal.
    sources : tuple of Operand
        What it is made of.
    sizes : tuple of tuple
        Shapes that it is given, so that symbolic sizes become parameters of the function.
    ty : relax.TensorType
        The result's type.
    hint : str
        What the function is called.
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
    """An operand once sizes have been checked: what reads it is ordered behind the check.

    Attributes
    ----------
    check : SizeCheck
        The check, of operands.
    name : str
        Which of those that the check returns.
    """

    check: SizeCheck
    name: str
    is_constant = False

    @property
    def ty(self) -> relax.TensorType:
        """The operand's type, which stays."""
        return self.check.tensors[self.name].ty

    def emit(self, _bb: relax.BlockBuilder, made: Made) -> relax.Expr:
        """What the check returns for it."""
        return made.after(self.check)[self.name]


Operand = Given | Field | KnownPositions | Computed | Checked


class Made:
    """The Relax expressions behind operands; each is made once, when it is first asked for."""

    def __init__(self, bb: relax.BlockBuilder) -> None:
        self._bb = bb
        # By identity, so the objects are kept as well: a later one could take the place of one.
        self._made: dict[int, tuple[Any, Any]] = {}

    def of(self, operand: Operand) -> relax.Expr:
        """The expression behind an operand."""
        return self._once(operand, lambda: operand.emit(self._bb, self))

    def after(self, check: SizeCheck) -> dict[str, relax.Expr]:
        """The tensors that a check of sizes returns."""
        return self._once(check, lambda: self._checked(check))

    def index_check(self, check: IndexCheck) -> IndexCheck:
        """A check of operands, as one of the expressions behind them."""
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
