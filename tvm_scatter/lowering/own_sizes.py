"""Sizes of tensors in the variables that a function of them alone can know.

A function learns a symbolic size from a tensor that has it. The size ``u + 100000`` tells it no
``u``, though, for TVM does not solve equations. So such a size gets a variable of its own, ``n``,
and ``u`` is ``n - 100000`` in whatever else the function computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tvm
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
        dims = [self._analyzer.simplify(dim) for shape in shapes for dim in shape]
        known = {dim for dim in dims if isinstance(dim, tvm.ir.Var)}
        for dim in dims:
            self._solve(dim, known)

    def _solve(self, dim: Any, known: set[Any]) -> None:
        """Make the one unknown variable of a sum known."""
        unknown = [each for each in _variables(dim) if each not in known | self._solved.keys()]
        if len(unknown) != 1:
            return
        [variable] = unknown
        others = self._analyzer.simplify(dim - variable)
        if variable in _variables(others):
            return
        size = tirx.Var("size", variable.ty.dtype)
        self._solved[variable] = size - self.expressed(others)

    def expressed(self, value: Any) -> Any:
        """A size in the variables that the function knows."""
        if isinstance(value, int) or not self._solved:
            return value
        return self._analyzer.simplify(self.within(value))

    def within(self, value: Any) -> Any:
        """An expression of elements in these variables, its arithmetic as it was."""
        return substitute(value, self._solved)


def _variables(expression: Any) -> list[Any]:
    """The variables of an expression, each once."""
    return list(dict.fromkeys(all_of(expression, tvm.ir.Var)))
