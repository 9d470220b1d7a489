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
    takes : callable
        Whether it scans elements of a type to results of a type.
    workspace : callable
        The bytes of memory that a problem needs beside its tensors.
    emit : callable
        Emits the statements. Its arguments are the problem, the elements, the results, and the
        workspace.
    """

    takes: Callable[[str, str], bool]
    workspace: Callable[[ScanProblem], Any]
    emit: Callable[[ScanProblem, Any, Any, Any], None]
