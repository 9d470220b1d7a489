"""A directory of tuning records: an ordinary MetaSchedule database and what goes with it.

``database_workload.json`` and ``database_tuning_record.json`` are TVM's own; ``metadata.json`` says
what the measurements were made on, ``failures.jsonl`` what was left out and why.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from tvm_scatter.errors import ScatterError
from tvm_scatter.problem import ScatterProblem
from tvm_scatter.records import Decision, architecture, decode, problem_of, schedule, workload
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
                found = problem_of(module)
                problems[module] = None if found is None else found[0]
            problem, decision = problems[module], decode(record.trace)
            if problem is not None and decision is not None and record.run_secs:
                yield problem, decision, [float(second) for second in record.run_secs]

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
        """The target of the records."""
        return self.stored.get_all_tuning_records()[0].target

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
        return [json.loads(line) for line in _whole_lines(path)] if path.exists() else []

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
        _mend(folder)
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
    """The records without a line that is no JSON: a tuner may be writing it just now."""
    stored = ms.database.MemoryDatabase()
    try:
        workloads = [
            ms.database.Workload.from_json(json.loads(line)) if _parses(line) else None
            for line in _lines(folder / WORKLOADS)
        ]
        for line in _whole_lines(folder / RECORDS):
            place, record = json.loads(line)
            made = workloads[place] if place < len(workloads) else None
            if made is not None:
                stored.commit_workload(made.mod)
                stored.commit_tuning_record(ms.database.TuningRecord.from_json(record, made))
    except Exception as error:  # whatever TVM makes of a damaged file
        raise _unreadable(folder, error) from error
    return stored


def _on_disk(folder: Path) -> Any:
    try:
        return ms.database.JSONDatabase(str(folder / WORKLOADS), str(folder / RECORDS))
    except Exception as error:  # whatever TVM makes of a damaged file
        raise _unreadable(folder, error) from error


def _unreadable(folder: Path, error: Exception) -> ScatterError:
    said = str(error).strip().splitlines() or [type(error).__name__]
    return ScatterError(f"tuning: the records in {str(folder)!r} cannot be read: {said[-1]}")


def _metadata(folder: Path) -> dict[str, Any] | None:
    path = folder / METADATA
    if not path.exists():
        return None
    try:
        metadata = json.loads(path.read_text(encoding="utf-8"))
        version, _ = metadata["format"], metadata["target"]["kind"]
        metadata.setdefault("runs", [])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ScatterError(f"tuning: {str(path)!r} cannot be read: {error}.") from error
    if version != FORMAT_VERSION:
        raise ScatterError(
            f"tuning: {str(folder)!r} is of format {version!r}, this version reads "
            f"{FORMAT_VERSION}."
        )
    assert isinstance(metadata, dict)
    return metadata


def _mend(folder: Path) -> None:
    """Leave out, with a warning, lines that are no JSON, such as one that a killed run began.

    TVM reads a database of which one line is damaged not at all. Records name their workload by its
    line, so a workload's line is never moved: what refers to a damaged one goes as well.
    """
    workloads = _lines(folder / WORKLOADS)
    good = [_parses(line) for line in workloads]
    keep = len(good)
    while keep and not good[keep - 1]:
        keep -= 1
    records = _lines(folder / RECORDS)
    whole = [
        line
        for line in records
        if _parses(line) and (place := json.loads(line)[0]) < keep and good[place]
    ]
    lost = len(records) - len(whole) + len(good) - sum(good)
    if not lost:
        return
    warnings.warn(
        f"tuning: {lost} damaged line(s) in {str(folder)!r} left out; the rest is kept.",
        stacklevel=3,
    )
    first = next((line for line, fine in zip(workloads, good, strict=True) if fine), None)
    if first is not None:
        # A damaged line in the middle keeps its place; nothing refers to it any more.
        kept = [line if fine else first for line, fine in zip(workloads, good, strict=True)]
        _write(folder / WORKLOADS, "".join(line + "\n" for line in kept[:keep]))
    else:
        _write(folder / WORKLOADS, "")
    _write(folder / RECORDS, "".join(line + "\n" for line in whole))


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []


def _whole_lines(path: Path) -> list[str]:
    return [line for line in _lines(path) if _parses(line)]


def _parses(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _write(path: Path, text: str) -> None:
    """Replace a file at once, so that a reader sees the old or the new one."""
    try:
        beside = path.with_name(path.name + ".new")
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    except OSError as error:
        raise ScatterError(f"tuning: {str(path)!r} cannot be written: {error}.") from error
