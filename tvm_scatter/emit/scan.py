"""Describes how a kind of target computes running sums and the like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .lines import Lines


@dataclass(frozen=True)
class ScanProblem(Lines):
    """The lines that are scanned.

    Attributes
    ----------
    kind : str
        What is combined: ``"sum"`` or ``"prod"``.
    exclusive : bool
        Whether results leave out their own element.
    data_dtype, dtype : str
        The types of the elements and of the results.
    """

    kind: str
    exclusive: bool
    data_dtype: str
    dtype: str


@dataclass(frozen=True)
class Scan:
    """Scans of a kind of target.

    Attributes
    ----------
    refusal : callable
        Why it does not scan elements of a type to results of a type, as a clause; ``None`` if it
        does.
    form : callable
        How it scans a problem, as a clause.
    workspace : callable
        The bytes of memory that a problem needs beside its tensors.
    emit : callable
        Emits the statements. Its arguments are the problem, the elements, the results, and the
        workspace.
    """

    refusal: Callable[[str, str], str | None]
    form: Callable[[ScanProblem], str]
    workspace: Callable[[ScanProblem], Any]
    emit: Callable[[ScanProblem, Any, Any, Any], None]
