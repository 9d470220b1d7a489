"""Rows of an earlier run in the report of a later one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tvm_scatter.errors import ScatterError

#: A data class with the facts of the ``earlier`` run that measured it.
Row = TypeVar("Row")
#: When sizes are known.
CONSTANT, VARYING = "constant", "known at run time only"
#: Facts in which the rows of one report must agree, and facts that differ between runs anyway.
_CONDITIONS = ("device", "driver", "threads", "caches", "scale", "sizes")
#: What a report that says nothing was measured with.
_UNSAID = {"sizes": CONSTANT}
_OF_A_RUN = ("clocks", "copy_bytes_per_us")


def continued(rows: Sequence[Row], before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Row]:
    """The rows of an earlier run, marked with the facts that differ from this run's.

    Parameters
    ----------
    before, now : mapping
        The facts of the run that measured the rows, and of this one.

    Raises
    ------
    ScatterError
        If that run differs from this one in a fact that makes the figures incomparable.
    """
    before, now = {**_UNSAID, **before}, {**_UNSAID, **now}
    for name in _CONDITIONS:
        if before.get(name) != now.get(name):
            raise ScatterError(
                f"bench: the report to resume was measured with {name} "
                f"{before.get(name)!r}, here it is {now.get(name)!r}; give --json "
                "another file."
            )
    return [_marked(row, before, now) for row in rows]


def _marked(row: Any, before: Mapping[str, Any], now: Mapping[str, Any]) -> Any:
    facts = {**before, **(row.earlier or {})}
    earlier = {
        name: facts.get(name, "unknown")
        for name, value in now.items()
        if name not in _OF_A_RUN and facts.get(name, "unknown") != value
    }
    return replace(row, earlier=earlier)
