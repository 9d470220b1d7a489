"""Sizes of tensors in the variables that a function of them alone can know.

A function learns a symbolic size from a tensor that has it. The size ``u + 100000`` tells it no
``u``, though, for TVM does not solve equations. So such a size gets a variable of its own, ``n``,
and ``u`` is ``n - 100000`` in whatever else the function computes. Of ``u + v`` one is known by the
other, which cancels where only the sum is used. The size ``u * v`` is a variable itself, for what
computes with nothing but the product.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import mul
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.sym import Analyzer

from tvm_scatter.emit.computed_updates import substitute
from tvm_scatter.emit.expressions import all_of


class OwnSizes:
    """The sizes of a function's tensors.

    Parameters
    ----------
    shapes : iterable of sequence of expression
        The shapes of the tensors that the function reads.
    """

    def __init__(self, shapes: Iterable[Sequence[Any]]) -> None:
        self._analyzer = Analyzer()
        self._solved: dict[Any, Any] = {}
        self._products: list[tuple[list[Any], Any]] = []
        dims = [self._analyzer.simplify(dim) for shape in shapes for dim in shape]
        self._known = {dim for dim in dims if isinstance(dim, tvm.ir.Var)}
        for dim in dims:
            self._add_product(dim)
        # Sums of several unknown variables come last: others may tell all but one of them.
        for several in (False, True):
            for dim in dims:
                self._solve(dim, several)

    def _add_product(self, dim: Any) -> None:
        """Make a product of variables known, of which some are not."""
        factors = _factors(self._with_products(dim))
        variables = all(isinstance(each, tvm.ir.Var) for each in factors)
        if variables and len(factors) > 1 and not self._known.issuperset(factors):
            size = tirx.Var("size", dim.ty.dtype)
            self._known.add(size)
            self._products.append((factors, size))

    def _with_products(self, value: Any) -> Any:
        def known(product: Any) -> Any:
            factors = _factors(product)
            for parts, size in self._products:
                rest = _without(factors, parts)
                if rest is not None:
                    return reduce(mul, rest, size)
            return product

        return tvm_ffi.structural_map(value, (tirx.Mul, known)) if self._products else value

    def _solve(self, dim: Any, several: bool) -> None:
        """Make a variable of a sum known: the unknown one, or, by the others, one of several.

        Where only the sum of several is used, the others cancel.
        """
        dim = self.expressed(dim)
        unknown = [each for each in _variables(dim) if each not in self._known]
        if len(unknown) > 1 and not several:
            return
        for variable in unknown:
            others = self._analyzer.simplify(dim - variable)
            if variable not in _variables(others):
                size = tirx.Var("size", variable.ty.dtype)
                self._known.add(size)
                found = {variable: self._analyzer.simplify(size - others)}
                earlier = {each: substitute(old, found) for each, old in self._solved.items()}
                self._solved = earlier | found
                return

    def expressed(self, value: Any) -> Any:
        """A size in the variables that the function knows."""
        if isinstance(value, int) or not (self._solved or self._products):
            return value
        return self._analyzer.simplify(self.within(value))

    def within(self, value: Any) -> Any:
        """An expression of elements in these variables, its arithmetic as it was."""
        return substitute(self._with_products(value), self._solved)


def _factors(product: Any) -> list[Any]:
    """What a product is a product of."""
    if isinstance(product, tirx.Mul):
        return [*_factors(product.a), *_factors(product.b)]
    return [product]


def _without(factors: Sequence[Any], parts: Sequence[Any]) -> list[Any] | None:
    """The factors without some of them; ``None`` if these are not all there."""
    left = list(factors)
    for part in parts:
        at = next((at for at, each in enumerate(left) if each.same_as(part)), None)
        if at is None:
            return None
        del left[at]
    return left


def _variables(expression: Any) -> list[Any]:
    """The variables of an expression, each once."""
    return list(dict.fromkeys(all_of(expression, tvm.ir.Var)))
