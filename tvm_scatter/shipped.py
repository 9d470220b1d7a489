"""The tuning logs that come with this package: found by the target's architecture."""

from __future__ import annotations

import json
import warnings
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from tvm.s_tir import meta_schedule as ms

from .problem import ScatterProblem
from .records import TunedRecord, architecture, records_in

#: Of ``metadata.json``; a file of a later version is left alone.
FORMAT_VERSION = 1
METADATA = "metadata.json"
WORKLOADS = "database_workload.json"
RECORDS = "database_tuning_record.json"


def shipped_records(problem: ScatterProblem, target: Any) -> list[TunedRecord]:
    """The candidates of a problem in the log shipped for a target, fastest first."""
    database = shipped_database(str(target.kind.name), architecture(target))
    return [] if database is None else records_in(database, problem, target)


@cache
def shipped_database(kind: str, arch: str) -> Any:
    """The log shipped for a kind of target and an architecture, or ``None`` if there is none."""
    folder = resources.files("tvm_scatter.tuning") / "logs"
    return database_for(Path(str(folder)), kind, arch)


def database_for(folder: Path, kind: str, arch: str) -> Any:
    """The log in one of the sub-folders of ``folder`` that is for an architecture.

    A log that this version cannot read, or a second one for the same architecture, is left alone
    with a warning.
    """
    found: Path | None = None
    for log in sorted(path.parent for path in folder.glob(f"*/{METADATA}")):
        if not _is_for(log, kind, arch):
            continue
        if found is not None:
            warnings.warn(
                f"tuning log {log.name!r} is ignored: {found.name!r} is for {arch or kind} too.",
                stacklevel=2,
            )
            continue
        found = log
    if found is None:
        return None
    try:
        return ms.database.JSONDatabase(
            str(found / WORKLOADS), str(found / RECORDS), allow_missing=False
        )
    except Exception as error:  # whatever TVM makes of a damaged file
        _ignored(found, f"it cannot be read: {str(error).strip().splitlines()[-1]}")
        return None


def _is_for(log: Path, kind: str, arch: str) -> bool:
    try:
        metadata = json.loads((log / METADATA).read_text(encoding="utf-8"))
        version, target = metadata["format"], metadata["target"]
        matches = (target["kind"], target.get("arch", "")) == (kind, arch)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        _ignored(log, f"its {METADATA} cannot be read")
        return False
    if matches and version != FORMAT_VERSION:
        _ignored(log, f"its format is {version}, this version reads {FORMAT_VERSION}")
        return False
    return bool(matches)


def _ignored(log: Path, reason: str) -> None:
    warnings.warn(f"tuning log {log.name!r} is ignored: {reason}.", stacklevel=3)
