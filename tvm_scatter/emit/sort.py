"""Describes how a kind of target sorts lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .lines import Lines


@dataclass(frozen=True)
class SortProblem(Lines):
    """The lines that are sorted.

    Attributes
    ----------
    dtype : str
        The type of the elements.
    place_dtype : str
        The type of the places that are found.
    descending : bool
        Whether the greatest elements come first.
    """

    dtype: str
    place_dtype: str
    descending: bool


@dataclass(frozen=True)
class Sort:
    """What a kind of target does with lines.

    Attributes
    ----------
    refusal : callable
        Why it does not sort a problem, as a clause; ``None`` if it does.
    form : callable
        How it sorts a problem, as a clause.
    workspace : callable
        The bytes of memory that a problem needs beside its tensors; 0 if it needs none.
    emit : callable
        Emits the statements. Its arguments are the problem, the elements, their places in order, of
        the same shape, and the workspace if there is one. Equal elements stay as they come.
    """

    refusal: Callable[[SortProblem], str | None]
    form: Callable[[SortProblem], str]
    workspace: Callable[[SortProblem], Any]
    emit: Callable[..., None]
