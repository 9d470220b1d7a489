"""Choices that predictions leave open: the few best are timed, once, and remembered."""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tvm_scatter.errors import ScatterWarning
from tvm_scatter.problem.plain_data import read_text
from tvm_scatter.problem.scatter_problem import ScatterProblem

from .backend import backend_of
from .records import TunedRecord, Way, records_in, workload_key
from .shipped_log import RECORDS, WORKLOADS, Log
from .user_folder import user_folder

#: The host makes operands and checks answers, which takes seconds beyond so many elements.
_MOST_ELEMENTS = 1 << 26
#: What times ways. This package measures without it, so it is imported where it is asked for.
_TIMER = "tvm_scatter.tuning.search.settle"
#: Problems that could not be measured in this process, so that it is not tried again and again.
_given_up: set[str] = set()


def settled(problem: ScatterProblem, target: Any, ways: Sequence[Way]) -> TunedRecord | None:
    """The fastest of several ways by a measurement on this machine's device.

    ``None`` if the target's device is not here, the problem is too large to measure within some
    seconds, or it cannot be measured, of which a warning tells.
    """
    key, device = workload_key(problem, target), backend_of(target).device_name(target)
    if not device or key in _given_up or problem.elements > _MOST_ELEMENTS:
        return None
    folder = user_folder() / "measured" / re.sub(r"\W+", "_", f"{target.kind.name} {device}")
    known = _remembered(folder, problem, target, ways)
    if len(known) == len(ways):
        return known[0]
    try:
        # A thread of its own has no options, pass context or database of the caller.
        with ThreadPoolExecutor(1) as thread:
            settle = importlib.import_module(_TIMER).settle
            thread.submit(settle, problem, target, ways, folder).result()
    except Exception as error:  # compilers and devices raise many kinds of errors
        _given_up.add(key)
        lines = str(error).strip().splitlines() or [type(error).__name__]
        warnings.warn(
            f"options: measure=True: [{problem}] is not measured: {lines[-1].rstrip('.')}; the "
            "prediction decides.",
            ScatterWarning,
            stacklevel=2,
        )
        return None
    return next(iter(_remembered(folder, problem, target, ways)), None)


def _remembered(
    folder: Path, problem: ScatterProblem, target: Any, ways: Sequence[Way]
) -> list[TunedRecord]:
    """The records of the ways that were measured before, the fastest first."""
    try:
        texts = {name: read_text(folder / name) for name in (WORKLOADS, RECORDS)}
    except (OSError, ValueError):
        return []
    wanted = [(name, dict(config)) for name, config in ways]
    found = records_in(Log(folder.name, texts), problem, target)
    return [each for each in found if (each.implementation, dict(each.config)) in wanted]
