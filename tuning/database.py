"""A directory of tuning records: an ordinary MetaSchedule database and what goes with it.

``database_workload.json`` and ``database_tuning_record.json`` are TVM's own; ``metadata.json`` says
what the measurements were made on, ``failures.jsonl`` what was left out and why.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from tvm_scatter.errors import ScatterError, ScatterWarning
from tvm_scatter.plain_data import parse, read_text
from tvm_scatter.problem import ScatterProblem
from tvm_scatter.record_form import check_record
from tvm_scatter.records import (
    Decision,
    architecture,
    measurement,
    passed_over,
    positive,
    problem_of,
    schedule,
    workload,
)
from tvm_scatter.shipped import FORMAT_VERSION, METADATA, RECORDS, WORKLOADS
from tvm_scatter.tuning.candidates import Candidate, need_strategy

FAILURES = "failures.jsonl"


class Database:
    """The records of one kind of target, in a directory that one process writes at a time.

    Use :func:`open_database` or :func:`read_database`.
    """

    def __init__(self, folder: Path, metadata: dict[str, Any], stored: Any) -> None:
        self.folder = folder
        self.metadata = metadata
        self.stored = stored

    def __len__(self) -> int:
        return len(self.stored)

    def records(self) -> Iterator[tuple[ScatterProblem, Decision, list[float]]]:
        """Every record that is one of ours: problem, decision and seconds."""
        problems: dict[Any, ScatterProblem | None] = {}
        for record in self.stored.get_all_tuning_records():
            module = record.workload.mod
            if module not in problems:
                problems[module] = self._problem(module)
            problem = problems[module]
            if problem is None:
                continue
            try:
                said = measurement(record)
            except ScatterError as error:
                passed_over(f"tuning: a record of [{problem}] in {str(self.folder)!r}", error)
            else:
                if said is not None:
                    yield problem, *said

    def _problem(self, module: Any) -> ScatterProblem | None:
        try:
            found = problem_of(module)
        except ScatterError as error:
            passed_over(f"tuning: a workload in {str(self.folder)!r}", error)
            return None
        return None if found is None else found[0]

    def need_target(self, target: Target) -> None:
        """Refuse records of another target.

        Raises
        ------
        ScatterError
            If the records are for another kind of target or another architecture.
        """
        theirs, ours = self.metadata["target"], _key(target)
        if theirs != ours:
            raise ScatterError(
                f"tuning: {str(self.folder)!r} holds records for "
                f"{' '.join(filter(None, theirs.values()))}, not for "
                f"{' '.join(filter(None, ours.values()))}; name another directory."
            )

    def target(self) -> Target:
        """The target of the records.

        Raises
        ------
        ScatterError
            If none of them is for the one that the metadata names.
        """
        targets = (record.target for record in self.stored.get_all_tuning_records())
        for target in targets:
            if target is not None and _key(target) == self.metadata["target"]:
                return target
        raise ScatterError(
            f"tuning: {str(self.folder)!r} holds no record for the target that it names."
        )

    def add(
        self,
        problem: ScatterProblem,
        target: Target,
        candidate: Candidate,
        circumstances: dict[str, str],
        seconds: list[float],
    ) -> None:
        """Append a record."""
        module = workload(problem, target)
        implementation = need_strategy(target).implementations[candidate.implementation]
        config = dict(candidate.config)
        knobs = implementation.knobs(problem, target)
        made = schedule(module, candidate.implementation, knobs, config, circumstances)
        rounded = [float(f"{second:.4g}") for second in seconds]
        self.stored.commit_tuning_record(
            ms.database.TuningRecord(
                made.trace, self.stored.commit_workload(module), rounded, target
            )
        )

    def add_failure(self, problem: ScatterProblem, candidate: Candidate, reason: str) -> None:
        """Append what was left out."""
        line = {"problem": str(problem), "candidate": str(candidate), "reason": reason}
        with (self.folder / FAILURES).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def failures(self) -> list[dict[str, str]]:
        """What was left out, in order."""
        path = self.folder / FAILURES
        return [line for _, line in _parsed(path) if isinstance(line, dict)]

    def add_run(self, run: dict[str, Any]) -> None:
        """Append a run to the metadata."""
        self.metadata["runs"].append(run)
        _write(self.folder / METADATA, json.dumps(self.metadata, indent=1) + "\n")


def _key(target: Target) -> dict[str, str]:
    return {"kind": str(target.kind.name), "arch": architecture(target)}


@contextlib.contextmanager
def open_database(folder: Path, target: Target) -> Iterator[Database]:
    """A directory to append to, made if it is not there.

    A last line that a killed run left unfinished is cut off with a warning.

    Raises
    ------
    ScatterError
        If the directory cannot be written, is in use by another process, or holds the records of
        another target or format.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock", timeout=0)
        lock.acquire()
    except Timeout as error:
        raise ScatterError(
            f"tuning: {str(folder)!r} is in use by another tuner; name another directory."
        ) from error
    except OSError as error:
        raise ScatterError(f"tuning: {str(folder)!r} cannot be written: {error}.") from error
    with lock:
        metadata = _metadata(folder)
        if metadata is None:
            metadata = {"format": FORMAT_VERSION, "target": _key(target), "runs": []}
            _write(folder / METADATA, json.dumps(metadata, indent=1) + "\n")
        database = Database(folder, metadata, None)
        database.need_target(target)
        _mend(folder, _looks_whole)
        try:
            database.stored = _on_disk(folder)
        except ScatterError:
            _mend(folder, _is_whole)
            database.stored = _on_disk(folder)
        yield database


def read_database(folder: Path) -> Database:
    """A directory to read.

    Raises
    ------
    ScatterError
        If it holds no records, or those of another format.
    """
    metadata = _metadata(folder)
    found = None if metadata is None else Database(folder, metadata, _in_memory(folder))
    if found is None or not len(found):
        raise ScatterError(f"tuning: {str(folder)!r} holds no tuning records.")
    return found


def _in_memory(folder: Path) -> Any:
    """The records that can be read; without a last line that a tuner may be writing just now."""
    stored = ms.database.MemoryDatabase()
    workloads = dict(_read_workloads(folder))
    for number, line in _parsed(folder / RECORDS):
        try:
            record = _read_record(line, workloads)
            if record is not None:
                stored.commit_workload(record.workload.mod)
                stored.commit_tuning_record(record)
        except Exception as error:  # whatever TVM makes of a damaged record
            passed_over(_line(folder / RECORDS, number), error)
    return stored


def _read_workloads(folder: Path) -> Iterator[tuple[int, Any]]:
    """Those that can be read, by the number of their line."""
    for number, line in _parsed(folder / WORKLOADS):
        try:
            yield number, ms.database.Workload.from_json(line)
        except Exception as error:  # whatever TVM makes of a damaged workload
            passed_over(_line(folder / WORKLOADS, number), error)


def _read_record(line: Any, workloads: Mapping[int, Any]) -> Any:
    """A record that counts; ``None`` where its workload cannot be read, which was said before."""
    place, described = line
    if place not in workloads:
        return None
    check_record(described)
    positive(described[1] or ())
    return ms.database.TuningRecord.from_json(described, workloads[place])


def _on_disk(folder: Path) -> Any:
    try:
        return ms.database.JSONDatabase(str(folder / WORKLOADS), str(folder / RECORDS))
    except Exception as error:  # whatever TVM makes of a damaged file
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise ScatterError(
            f"tuning: the records in {str(folder)!r} cannot be read: {said[-1].rstrip('.')}."
        ) from error


def _metadata(folder: Path) -> dict[str, Any] | None:
    path = folder / METADATA
    if not path.exists():
        return None
    try:
        metadata = parse(read_text(path))
        version, target = metadata["format"], metadata["target"]
        target = {"kind": str(target["kind"]), "arch": str(target.get("arch", ""))}
        if not all(text.isprintable() for text in target.values()):
            raise ValueError("its target is no name")
        metadata["target"] = target
        runs = metadata.setdefault("runs", [])
        metadata["runs"] = [run for run in runs if isinstance(run, dict)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ScatterError(f"tuning: {str(path)!r} cannot be read: {error}.") from error
    if version != FORMAT_VERSION:
        raise ScatterError(
            f"tuning: {str(folder)!r} is of format {version!r}, this version reads "
            f"{FORMAT_VERSION}."
        )
    assert isinstance(metadata, dict)
    return metadata


_Check = Callable[[Any, Mapping[int, Any]], bool]


def _mend(folder: Path, is_whole: _Check) -> None:
    """Leave out, with a warning, lines that cannot be read, such as one that a killed run began.

    TVM reads a database of which one line is damaged not at all. Records name their workload by its
    line, so a workload's line is never moved: what refers to a damaged one goes as well.
    """
    lines = _lines(folder / WORKLOADS)
    workloads = dict(_read_workloads(folder))
    keep = max(workloads, default=-1) + 1
    records = _lines(folder / RECORDS)
    whole = [
        records[number] for number, line in _parsed(folder / RECORDS) if is_whole(line, workloads)
    ]
    lost = len(records) - len(whole) + len(lines) - len(workloads)
    if not lost:
        return
    warnings.warn(
        f"tuning: {lost} damaged line(s) in {str(folder)!r} left out; the rest is kept.",
        ScatterWarning,
        stacklevel=3,
    )
    # A damaged line in the middle keeps its place; nothing refers to it any more.
    first = min(workloads, default=0)
    kept = [lines[place if place in workloads else first] for place in range(keep)]
    _write(folder / WORKLOADS, "".join(line + "\n" for line in kept))
    _write(folder / RECORDS, "".join(line + "\n" for line in whole))


def _looks_whole(line: Any, workloads: Mapping[int, Any]) -> bool:
    """Whether a line has the form of a record: asking TVM of each takes a while."""
    try:
        place, described = line
        check_record(described)
        positive(described[1] or ())
        return place in workloads
    except (TypeError, ValueError):
        return False


def _is_whole(line: Any, workloads: Mapping[int, Any]) -> bool:
    try:
        return _read_record(line, workloads) is not None
    except Exception:  # whatever TVM makes of a damaged record
        return False


def _lines(path: Path) -> list[str]:
    try:
        return read_text(path).splitlines() if path.exists() else []
    except (OSError, ValueError) as error:
        raise ScatterError(f"tuning: {str(path)!r} cannot be read: {error}.") from error


def _parsed(path: Path) -> Iterator[tuple[int, Any]]:
    """The lines that are JSON, each with its number, from 0."""
    for number, line in enumerate(_lines(path)):
        with contextlib.suppress(ValueError):
            yield number, parse(line)


def _line(path: Path, number: int) -> str:
    return f"tuning: line {number + 1} of {str(path)!r}"


def _write(path: Path, text: str) -> None:
    """Replace a file at once, so that a reader sees the old or the new one."""
    try:
        beside = path.with_name(path.name + ".new")
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    except OSError as error:
        raise ScatterError(f"tuning: {str(path)!r} cannot be written: {error}.") from error
