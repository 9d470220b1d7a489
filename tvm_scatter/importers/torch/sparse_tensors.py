"""What stands for a sparse tensor of coordinates: a pair of Relax tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Sparse:
    """A sparse tensor. What several entries of one place hold is added up.

    Attributes
    ----------
    indices : tuple of relax.Expr
        The coordinates of the entries: a vector of integers for each sparse axis.
    values : relax.Expr
        Shape (entries, \\*dense axes).
    shape : tuple
        The sizes of all axes, the sparse ones first.
    """

    indices: tuple[Any, ...]
    values: Any
    shape: tuple[Any, ...]
