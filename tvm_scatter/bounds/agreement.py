"""Sizes that must be equal although nobody knows it: taken to be equal, and checked at run time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tvm import relax

from tvm_scatter.ops.shapes import SymbolTable
from tvm_scatter.problem.signature import Dim

from .size_check import Equal, Place, SizeCheck


class Tensor(Protocol):
    """An operand, which need not be made yet."""

    @property
    def ty(self) -> relax.TensorType:
        """Its type."""

    @property
    def is_constant(self) -> bool:
        """Whether its values are known."""


class Agreement:
    """What the sizes of one call must have in common.

    Parameters
    ----------
    operator : str
        What errors call it.
    symbols : SymbolTable
        Sizes that are taken to be equal get one name here.
    tensors : dict of str to Tensor
        The operands, by the names that errors give them.
    """

    def __init__(self, operator: str, symbols: SymbolTable, tensors: Mapping[str, Tensor]) -> None:
        self._operator = operator
        self._symbols = symbols
        self._tensors = tensors
        self._rules: list[Equal] = []

    def expect_equal(self, left: Place, right: Place) -> None:
        """Let two sizes be equal, if at least one is symbolic and they may be."""
        one, other = self._size(left), self._size(right)
        if one == other or (isinstance(one, int) and isinstance(other, int)) or 0 in (one, other):
            return
        if self._tensors[left.tensor].is_constant:
            # A constant is not handed on by the check.
            left, right = right, left
        self._rules.append(Equal(left, right))
        if isinstance(one, str):
            self._symbols.take_for(one, other)
        elif isinstance(other, str):
            self._symbols.take_for(other, one)

    def expect_broadcast(self, names: Sequence[str]) -> list[Place]:
        """Let tensors broadcast against each other.

        Returns
        -------
        places : list of Place
            For each dimension of their common shape one that has its size.
        """
        shapes = {name: self._symbols.shape(self._operator, self._tensors[name]) for name in names}
        rank = max(map(len, shapes.values()))
        common: list[Place] = []
        for behind in range(rank, 0, -1):
            places = [
                Place(name, len(shape) - behind)
                for name, shape in shapes.items()
                if len(shape) >= behind
            ]
            wide = [place for place in places if self._size(place) != 1]
            for place in wide[1:]:
                self.expect_equal(place, wide[0])
            common.append((wide or places)[0])
        return common

    def expect_to_fit(self, name: str, wanted: Sequence[Place]) -> None:
        """Let a tensor broadcast to a shape, whose sizes stand at some places."""
        rank = len(self._symbols.shape(self._operator, self._tensors[name]))
        for dimension, place in zip(range(rank)[::-1], wanted[::-1], strict=False):
            if self._size(Place(name, dimension)) != 1:
                self.expect_equal(Place(name, dimension), place)

    def check(self) -> SizeCheck | None:
        """What is left to be checked at run time; it returns operands that rely on it."""
        if not self._rules:
            return None
        places = [place for rule in self._rules for place in (rule.left, rule.right)]
        return SizeCheck(
            operator=self._operator,
            rules=tuple(self._rules),
            tensors={place.tensor: self._tensors[place.tensor] for place in places},
            returned=tuple(dict.fromkeys(rule.left.tensor for rule in self._rules)),
        )

    def _size(self, place: Place) -> Dim:
        shape = self._symbols.shape(self._operator, self._tensors[place.tensor])
        return shape[place.dimension]
