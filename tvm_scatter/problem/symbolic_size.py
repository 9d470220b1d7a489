"""Sizes: constants, or products with symbolic factors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SymbolicSize:
    """A size: a constant times any number of symbolic factors.

    Parameters
    ----------
    constant : int
        The static factor.
    symbols : tuple of str
        Names of the symbolic factors, sorted, so that equal products compare equal.
    """

    constant: int = 1
    symbols: tuple[str, ...] = ()

    @staticmethod
    def product(dims: Iterable[int | str]) -> SymbolicSize:
        """The product of ``dims``; an ``int`` is a static size, a ``str`` names a symbolic one."""
        constant, symbols = 1, []
        for dim in dims:
            if isinstance(dim, str):
                symbols.append(dim)
            else:
                constant *= int(dim)
        return SymbolicSize(constant, tuple(sorted(symbols)) if constant else ())

    def __mul__(self, other: SymbolicSize) -> SymbolicSize:
        constant = self.constant * other.constant
        return SymbolicSize(
            constant, tuple(sorted(self.symbols + other.symbols)) if constant else ()
        )

    @property
    def is_static(self) -> bool:
        """Whether the size is known at compile time."""
        return not self.symbols

    @property
    def is_one(self) -> bool:
        """Whether the size is certainly 1."""
        return self.is_static and self.constant == 1

    def value(self, sizes: Mapping[str, Any]) -> Any:
        """The size, with the value of each symbol from ``sizes``: an ``int`` or an expression."""
        result: Any = self.constant
        for symbol in self.symbols:
            result = result * sizes[symbol]
        return result

    def __str__(self) -> str:
        factors = list(self.symbols)
        if self.constant != 1 or not factors:
            factors.insert(0, str(self.constant))
        return "*".join(factors)

    @staticmethod
    def parse(text: str) -> SymbolicSize:
        """The inverse of ``str``."""
        return SymbolicSize.product(
            int(f) if f.lstrip("-").isdigit() else f for f in text.split("*")
        )
