"""The lines of a tensor, along which running sums, sorts and selections are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Lines:
    """A tensor as (outer, length, inner), whose lines run along its length.

    Attributes
    ----------
    outer, length, inner : int or expression
        The sizes.
    """

    outer: Any
    length: Any
    inner: Any

    @property
    def number(self) -> Any:
        """How many lines there are."""
        return self.outer * self.inner

    @property
    def size(self) -> Any:
        """How many elements there are."""
        return self.number * self.length
