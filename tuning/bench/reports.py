"""What the reports of both benchmarks, of scatters and of models, have in common."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from tvm_scatter.errors import ScatterError

from .resumed import VARYING

Row = TypeVar("Row")


def save(report: Any, path: Path) -> None:
    """Write a report, a data class, as JSON."""
    path.write_text(json.dumps(asdict(report), indent=1) + "\n", encoding="utf-8")


def load(
    path: Path, what: str, row: Callable[[Mapping[str, Any]], Row]
) -> tuple[dict[str, Any], list[Row]]:
    """The facts of the machine and the rows of a report that :func:`save` wrote.

    Parameters
    ----------
    what : str
        What it is a report of, for the error message.
    row : callable
        Makes a row from its fields.

    Raises
    ------
    ScatterError
        If the file is no report.
    """
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        return plain["machine"], [row(each) for each in plain["rows"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ScatterError(f"bench: {str(path)!r} is no report of {what}: {error}.") from error


def geometric_mean(ratios: Iterable[float]) -> float:
    """Of the ratios that are known; "not a number" if none is."""
    known = [math.log(ratio) for ratio in ratios if ratio == ratio]
    return math.exp(sum(known) / len(known)) if known else math.nan


def machine_text(facts: Mapping[str, Any]) -> str:
    """What a run was made on."""
    driver = f"driver {facts['driver']}" if "driver" in facts else f"{facts['threads']} threads"
    scale = facts.get("scale", 1)
    part = f"; 1/{scale} of the work" if scale > 1 else ""
    sizes = f"; sizes {VARYING}" if facts.get("sizes") == VARYING else ""
    bandwidth = f"{facts['copy_bytes_per_us'] / 1e3:,.1f} GB/s"
    return (
        f"{facts['device']}, {driver}, TVM {facts['tvm']}, PyTorch {facts['torch']}; caches "
        f"{facts['caches']}; copy bandwidth {bandwidth}{part}{sizes}."
    )


def marks(rows: Iterable[Any]) -> list[str]:
    """A sentence that explains the marks at rows; none if no row has one."""
    marked = [row.earlier for row in rows if row.earlier is not None]
    if not marked:
        return []
    values: dict[str, set[str]] = {}
    for earlier in marked:
        for name, value in earlier.items():
            values.setdefault(name, set()).add(str(value))
    other = " and ".join(f"{name} {' or '.join(sorted(values[name]))}" for name in values)
    other = other or "the same kernels and versions"
    return [f"Rows with a * were measured by an earlier run, with {other}."]
