"""The two files of a MetaSchedule database, read and appended to without TVM's own reader.

That reader trusts the files, and a damaged one may end the process. Logs come from anybody, so a
workload of this package is made anew from the problem that it names; others are left alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm.s_tir import meta_schedule as ms

from tvm_scatter.errors import ScatterError, ScatterWarning
from tvm_scatter.problem.plain_data import parse, read_text
from tvm_scatter.selection.record_form import check_record
from tvm_scatter.selection.records import passed_over, positive, workload_again
from tvm_scatter.selection.shipped_log import RECORDS, WORKLOADS


@dataclass(frozen=True)
class Contents:
    """The readable lines of both files.

    Attributes
    ----------
    workloads, records : mapping of int to Any
        By line number, from 0; ``None`` for lines that are whole but not this package's.
    """

    workloads: Mapping[int, Any]
    records: Mapping[int, Any]


def read_files(folder: Path) -> Contents:
    """Read both files. Damaged lines are passed over with a warning.

    A line that is no JSON is left out silently: a tuner may be writing it just now.
    """
    workloads = dict(_read_workloads(folder / WORKLOADS))
    return Contents(workloads, dict(_read_records(folder / RECORDS, workloads)))


def _read_workloads(path: Path) -> Iterator[tuple[int, Any]]:
    for number, line in parsed_lines(path):
        try:
            module = workload_again(line)
        except ScatterError as error:
            passed_over(_line(path, number), error)
        else:
            yield number, None if module is None else ms.database.Workload(module)


def _read_records(path: Path, workloads: Mapping[int, Any]) -> Iterator[tuple[int, Any]]:
    for number, line in parsed_lines(path):
        try:
            place, described = line
            # Records of a damaged workload go as well; their warning was given above.
            if place in workloads:
                yield number, _record(described, workloads[place])
        except Exception as error:  # whatever TVM makes of a damaged record
            passed_over(_line(path, number), error)


def _record(described: Any, workload: Any) -> Any:
    if workload is None:
        return None
    check_record(described)
    positive(described[1] or ())
    return ms.database.TuningRecord.from_json(described, workload)


def mend_files(folder: Path, contents: Contents) -> None:
    """Remove lines that cannot be read, with a warning, such as one that a killed run began.

    TVM does not read a database with a damaged line. Records name their workload by its
    line, so a workload's line is never moved.
    """
    lines, records = _lines_of(folder / WORKLOADS), _lines_of(folder / RECORDS)
    lost = len(records) - len(contents.records) + len(lines) - len(contents.workloads)
    if lost:
        warnings.warn(
            f"tuning: {lost} damaged line(s) in {str(folder)!r} left out; the rest is kept.",
            ScatterWarning,
            stacklevel=4,
        )
    if lost or not (_ends(folder / WORKLOADS) and _ends(folder / RECORDS)):
        # A damaged line in the middle keeps its place; nothing refers to it any more.
        first = min(contents.workloads, default=0)
        places = range(max(contents.workloads, default=-1) + 1)
        kept = [lines[place if place in contents.workloads else first] for place in places]
        write(folder / WORKLOADS, "".join(line + "\n" for line in kept))
        write(folder / RECORDS, "".join(records[number] + "\n" for number in contents.records))


def _ends(path: Path) -> bool:
    """Whether the file ends with a line break, so that a line can be appended."""
    return not path.exists() or read_text(path)[-1:] in ("", "\n")


def append(path: Path, line: Any) -> None:
    """Append plain data as a line."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
    except OSError as error:
        raise _not_written(path, error) from error


def _lines_of(path: Path) -> list[str]:
    """The lines of a file; none where it is not there."""
    try:
        return read_text(path).splitlines() if path.exists() else []
    except (OSError, ValueError) as error:
        raise ScatterError(f"tuning: {str(path)!r} cannot be read: {error}.") from error


def parsed_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """The lines that are JSON, each with its number, from 0."""
    for number, line in enumerate(_lines_of(path)):
        with contextlib.suppress(ValueError):
            yield number, parse(line)


def _line(path: Path, number: int) -> str:
    return f"tuning: line {number + 1} of {str(path)!r}"


def write(path: Path, text: str) -> None:
    """Replace a file in one step, so that a reader sees either the old or the new one."""
    try:
        beside = path.with_name(path.name + ".new")
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    except OSError as error:
        raise _not_written(path, error) from error


def _not_written(path: Path, error: OSError) -> ScatterError:
    return ScatterError(f"tuning: {str(path)!r} cannot be written: {error}.")
