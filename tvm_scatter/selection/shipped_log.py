"""The tuning logs that come with this package, found by the architecture of the target.

Each is an archive of a MetaSchedule database: ``tar xf`` makes a directory that any tool reads.
"""

from __future__ import annotations

import lzma
import tarfile
import warnings
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir import meta_schedule as ms

from tvm_scatter.errors import ScatterWarning
from tvm_scatter.problem.plain_data import parse
from tvm_scatter.problem.scatter_problem import ScatterProblem

from .record_form import check_record
from .records import (
    TunedRecord,
    Usable,
    architecture,
    passed_over,
    positive,
    records_in,
    workload_hash,
)

#: The format version of ``metadata.json``. Logs of a later version are not read.
FORMAT_VERSION = 1
METADATA = "metadata.json"
WORKLOADS = "database_workload.json"
RECORDS = "database_tuning_record.json"
#: How the name of a packed log ends.
PACKED = ".tar.xz"


def shipped_records(
    problem: ScatterProblem, target: Any, usable: Usable | None = None
) -> list[TunedRecord]:
    """The measured candidates of a problem in the log shipped for a target.

    In the order of :func:`~tvm_scatter.selection.records.records_in`.
    """
    database = shipped_database(str(target.kind.name), architecture(target))
    return [] if database is None else records_in(database, problem, target, usable)


def shipped_device(target: Any) -> str:
    """What the device calls itself that the log shipped for a target was measured on, if known."""
    database = shipped_database(str(target.kind.name), architecture(target))
    return "" if database is None else str(database.device)


@cache
def shipped_database(kind: str, arch: str) -> Any:
    """The shipped log for a kind of target and an architecture, or ``None`` if there is none."""
    folder = resources.files("tvm_scatter.tuning") / "logs"
    return database_for(Path(str(folder)), kind, arch)


def database_for(folder: Path, kind: str, arch: str) -> Any:
    """The log for an architecture among the archives in ``folder``, or ``None`` if there is none.

    Warns of a log that this version cannot read, and of a second log for the same architecture, and
    ignores them.
    """
    found: Path | None = None
    for log in sorted(folder.glob(f"*{PACKED}")):
        if not _is_for(log, kind, arch):
            continue
        if found is not None:
            warnings.warn(
                f"tuning log {_name(log)!r} is ignored: {_name(found)!r} is for {arch or kind} "
                "too.",
                ScatterWarning,
                stacklevel=2,
            )
            continue
        found = log
    if found is None:
        return None
    try:
        return Log(_name(found), _unpacked(found, METADATA, WORKLOADS, RECORDS))
    except _UNREADABLE as error:
        _ignored(found, f"it cannot be read: {error}")
        return None


#: What reading a damaged archive raises.
_UNREADABLE = (OSError, ValueError, EOFError, LookupError, tarfile.TarError, lzma.LZMAError)


def _unpacked(log: Path, *names: str) -> dict[str, str]:
    """The texts of files in an archive, which is read no further than needed."""
    found: dict[str, str] = {}
    with tarfile.open(log, "r:xz") as archive:
        for member in archive:
            name = Path(member.name).name
            if name in names and (file := archive.extractfile(member)) is not None:
                found[name] = file.read().decode("utf-8", errors="replace")
            if len(found) == len(names):
                return found
    raise ValueError(f"it lacks {', '.join(sorted({*names} - {*found}))}")


class Log:
    """A read-only JSON database of MetaSchedule. It parses only the entries that are asked for.

    MetaSchedule's own reader parses all of it first, which takes longer than compiling a model.
    Damaged entries are ignored with a warning.

    Parameters
    ----------
    name : str
        For warnings.
    texts : mapping of str to str
        The contents of the files :data:`METADATA`, :data:`WORKLOADS` and :data:`RECORDS`.

    Attributes
    ----------
    device : str
        What the device of its first run calls itself; nothing if it does not say.
    """

    def __init__(self, name: str, texts: Mapping[str, str]) -> None:
        self._name = name
        self.device = _device(texts.get(METADATA, ""))
        self._places: dict[str, int] = {}
        self._records: dict[int, list[tuple[int, str]]] = {}
        for place, line in enumerate(texts[WORKLOADS].splitlines()):
            try:
                self._places[str(parse(line)[0])] = place
            except (ValueError, LookupError, TypeError) as error:
                self._pass_over(WORKLOADS, place, error)
        for number, line in enumerate(texts[RECORDS].splitlines()):
            start, comma, _ = line[1:].partition(",")
            if line.startswith("[") and comma and line.endswith("]]") and start.isdecimal():
                self._records.setdefault(int(start), []).append((number, line))
            else:
                self._pass_over(RECORDS, number, ValueError("it is no record"))

    def _pass_over(self, name: str, number: int, error: Exception) -> None:
        passed_over(f"tuning log {self._name!r}: line {number + 1} of {name}", error)

    def has_workload(self, module: tvm.IRModule) -> bool:
        """Whether the log holds records of a workload."""
        return workload_hash(module) in self._places

    def commit_workload(self, module: tvm.IRModule) -> Any:
        """The workload for a module."""
        return ms.database.Workload(module)

    def get_top_k(self, workload: Any, _count: int) -> list[Any]:
        """All records of a workload, in the order in which they were made."""
        found = []
        for number, line in self._records.get(self._places[workload_hash(workload.mod)], ()):
            try:
                described = parse(line)[1]
                check_record(described)
                positive(described[1] or ())
                found.append(ms.database.TuningRecord.from_json(described, workload))
            except Exception as error:  # TVM raises many kinds of errors for a damaged record
                self._pass_over(RECORDS, number, error)
        return found


def _is_for(log: Path, kind: str, arch: str) -> bool:
    try:
        metadata = parse(_unpacked(log, METADATA)[METADATA])
        version, target = metadata["format"], metadata["target"]
        matches = (target["kind"], target.get("arch", "")) == (kind, arch)
    except (*_UNREADABLE, TypeError, AttributeError):
        _ignored(log, f"its {METADATA} cannot be read")
        return False
    if matches and version != FORMAT_VERSION:
        _ignored(log, f"its format is {version}, this version reads {FORMAT_VERSION}")
        return False
    return bool(matches)


def _device(metadata: str) -> str:
    try:
        return str(parse(metadata)["runs"][0]["machine"]["device"])
    except (ValueError, LookupError, TypeError):
        return ""


def _name(log: Path) -> str:
    return log.name.removesuffix(PACKED)


def _ignored(log: Path, reason: str) -> None:
    warnings.warn(f"tuning log {_name(log)!r} is ignored: {reason}.", ScatterWarning, stacklevel=3)
