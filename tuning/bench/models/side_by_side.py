"""Rows of the benchmark of models that are compiled side by side, and timed one at a time."""

from __future__ import annotations

import multiprocessing
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from tvm_scatter.errors import ScatterError

from .figures import Figures
from .rows import Row, rows


@dataclass(frozen=True)
class Setting:
    """What all rows of a run on a GPU have in common.

    Attributes
    ----------
    scale : int
        The part of the work: one in so many.
    forms : tuple of str
        The forms of ours.
    compile_peer : bool
        Whether ``torch.compile`` is a peer as well.
    bandwidth : float
        Bytes per microsecond of a large copy.
    dynamic : bool
        Whether sizes that vary are known at run time only.
    until : float
        The value of ``time.monotonic`` after which no row is begun.
    """

    scale: int
    forms: tuple[str, ...]
    compile_peer: bool
    bandwidth: float
    dynamic: bool
    until: float


def run(wanted: Sequence[Row], setting: Setting, jobs: int) -> Iterator[Figures | ScatterError]:
    """Compile rows in several processes, and time one row at a time.

    Compiling takes a hundred times longer than timing. Rows that are alike share a process.

    Returns
    -------
    iterator of Figures or ScatterError
        The figures of a row, in any order, or why a process could not go on.
    """
    context = multiprocessing.get_context("spawn")
    groups = [
        (setting, [row.name for row in group]) for _, group in groupby(wanted, _what_is_alike)
    ]
    # A process ends with its group: it leaves no memory behind, nor a GPU that does not answer.
    with context.Pool(jobs, _begin, (context.Lock(),), maxtasksperchild=1) as pool:
        for found, error in pool.imap_unordered(_measured, groups):
            yield from found
            if error is not None:
                yield error


def _what_is_alike(row: Row) -> str:
    return row.alike


_turn: Any = None


def _begin(turn: Any) -> None:
    global _turn
    _turn = turn
    # Each process would start as many compilers as there are cores.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    warnings.simplefilter("ignore")


def _measured(group: tuple[Setting, list[str]]) -> tuple[list[Figures], ScatterError | None]:
    """The figures of rows that are alike."""
    from tvm_scatter.selection.targets import gpu_target

    from . import run as one_by_one

    setting, names = group
    found: list[Figures] = []
    if time.monotonic() > setting.until:
        return found, None
    wanted = [row for row in rows(setting.scale) if row.name in names]
    measured = one_by_one.run(
        wanted,
        "cuda",
        gpu_target(),
        setting.forms,
        setting.compile_peer,
        setting.bandwidth,
        setting.dynamic,
        _turn,
    )
    try:
        found.extend(measured)
    except ScatterError as error:
        return found, error
    return found, None
