"""A directory of tuning records: an ordinary MetaSchedule database and two files beside it.

``database_workload.json`` and ``database_tuning_record.json`` are TVM's own; ``metadata.json`` says
which machine made the measurements, ``failures.jsonl`` which candidates were left out and why.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.plain_data import parse, read_text
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.selection.records import (
    Decision,
    architecture,
    completed,
    measurement,
    passed_over,
    problem_of,
    schedule,
    workload,
    workload_hash,
)
from tvm_scatter.selection.shipped_log import FORMAT_VERSION, METADATA, RECORDS, WORKLOADS
from tvm_scatter.selection.strategy import strategy_for
from tvm_scatter.tuning.space.candidates import Candidate, need_strategy

from .log_files import (
    Contents,
    append,
    mend_files,
    parsed_lines,
    read_files,
    write,
)

FAILURES = "failures.jsonl"


class Database:
    """The records of one kind of target, in a directory that one process writes at a time.

    Use :func:`open_database` or :func:`read_database`.
    """

    def __init__(self, folder: Path, metadata: dict[str, Any]) -> None:
        self.folder = folder
        self.metadata = metadata
        self.stored = ms.database.MemoryDatabase()
        #: The line of each workload, by its hash, and how many lines there are.
        self._places: dict[str, int] = {}
        self._lines = 0

    def __len__(self) -> int:
        return len(self.stored)

    def records(self) -> Iterator[tuple[ScatterProblem, Decision, list[float]]]:
        """Every record of this package: problem, decision and seconds.

        Knobs that are newer than a record are completed where they have one value only.
        """
        offered: dict[tuple[ScatterProblem, str], Mapping[str, tuple[int, ...]]] = {}
        problems: dict[Any, ScatterProblem] = {}
        for record in self.stored.get_all_tuning_records():
            module = record.workload.mod
            if module not in problems:
                found = problem_of(module)
                assert found is not None  # of another, no record is taken
                problems[module] = found[0]
            problem = problems[module]
            try:
                said = measurement(record)
            except ScatterError as error:
                passed_over(f"tuning: a record of [{problem}] in {str(self.folder)!r}", error)
            else:
                if said is not None:
                    decision, seconds = said
                    key = problem, decision.implementation
                    if key not in offered:
                        offered[key] = _knobs(*key, record.target)
                    config = completed(decision.config, offered[key])
                    yield problem, replace(decision, config=config), seconds

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
            If no record is for the target that the metadata names.
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
        committed = self.stored.commit_workload(module)
        record = ms.database.TuningRecord(made.trace, committed, rounded, target)
        append(self.folder / RECORDS, [self._place(committed), record.as_json()])
        self.stored.commit_tuning_record(record)

    def _place(self, committed: Any) -> int:
        """The number of a workload's line; the line is appended if it is not there."""
        key = workload_hash(committed.mod)
        if key not in self._places:
            append(self.folder / WORKLOADS, committed.as_json())
            self._places[key] = self._lines
            self._lines += 1
        return self._places[key]

    def take(self, contents: Contents) -> None:
        """Load this package's records from the files."""
        self._lines = max(contents.workloads, default=-1) + 1
        for place, each in contents.workloads.items():
            if each is not None:
                self.stored.commit_workload(each.mod)
                self._places.setdefault(workload_hash(each.mod), place)
        for record in contents.records.values():
            if record is not None:
                self.stored.commit_tuning_record(record)

    def add_failure(self, problem: ScatterProblem, candidate: Candidate, reason: str) -> None:
        """Append a candidate that was left out."""
        line = {"problem": str(problem), "candidate": str(candidate), "reason": reason}
        with (self.folder / FAILURES).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def failures(self) -> list[dict[str, str]]:
        """The candidates that were left out, in order."""
        path = self.folder / FAILURES
        return [line for _, line in parsed_lines(path) if isinstance(line, dict)]

    def add_run(self, run: dict[str, Any]) -> None:
        """Append a run to the metadata."""
        self.metadata["runs"].append(run)
        write(self.folder / METADATA, json.dumps(self.metadata, indent=1) + "\n")


def _knobs(
    problem: ScatterProblem, name: str, target: Target | None
) -> Mapping[str, tuple[int, ...]]:
    """The knobs that an implementation has for a problem; none if it is gone."""
    strategy = target and strategy_for(target.kind.name)
    implementation = strategy and strategy.implementations.get(name)
    if not implementation or implementation.refusal(problem, target):
        return {}
    return implementation.knobs(problem, target)


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
            write(folder / METADATA, json.dumps(metadata, indent=1) + "\n")
        database = Database(folder, metadata)
        database.need_target(target)
        contents = read_files(folder)
        mend_files(folder, contents)
        database.take(contents)
        yield database


def read_database(folder: Path) -> Database:
    """A directory to read.

    Raises
    ------
    ScatterError
        If it holds no records, or those of another format.
    """
    metadata = _metadata(folder)
    if metadata is not None:
        database = Database(folder, metadata)
        database.take(read_files(folder))
        if len(database):
            return database
    raise ScatterError(f"tuning: {str(folder)!r} holds no tuning records.")


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
