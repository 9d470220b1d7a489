"""Describes how a kind of target finds the smallest elements of lines without sorting them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .lines import Lines


@dataclass(frozen=True)
class SmallestProblem(Lines):
    """The lines of which the smallest elements are wanted.

    Attributes
    ----------
    dtype : str
        The type of the elements.
    place_dtype : str
        The type of the places that are found.
    count : int
        The number of elements that are wanted of each line.
    """

    dtype: str
    place_dtype: str
    count: int


@dataclass(frozen=True)
class Smallest:
    """What a kind of target does with lines.

    Attributes
    ----------
    refusal : callable
        Why it does not do a problem, or not faster than a sort of the lines, as a clause; ``None``
        if it does.
    form : callable
        How it does a problem, as a clause.
    workspace : callable
        The bytes of memory that a problem needs beside its tensors; 0 if it needs none.
    emit : callable
        Emits the statements. Its arguments are the problem, the elements, the places of the
        smallest ones, of shape (outer, count, inner), and the workspace if there is one. Places are
        in ascending order of the elements, equal ones as they come. Of lines that are shorter than
        ``count``, the rest of the places are 0.
    """

    refusal: Callable[[SmallestProblem], str | None]
    form: Callable[[SmallestProblem], str]
    workspace: Callable[[SmallestProblem], Any]
    emit: Callable[..., None]
