"""Tuned records: how a problem is found in, and read from, a MetaSchedule database.

A record's workload is an IRModule with one schedulable block that carries the problem as text. Its
trace annotates that block with the implementation and its knobs, so an ordinary MetaSchedule
database holds everything and TVM's own tools can read it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.script import tirx as T

from .problem import ScatterProblem

IMPLEMENTATION = "scatter.implementation"
KNOBS = "scatter.knobs"
#: How many records are looked through for one that still fits.
_MOST_RECORDS = 64


@dataclass(frozen=True)
class TunedRecord:
    """The fastest measurement of a problem: implementation, knobs and time in microseconds."""

    implementation: str
    config: Mapping[str, int]
    microseconds: float


def workload_key(problem: ScatterProblem, target: Any) -> str:
    """The text that identifies a problem in a database: it, and the architecture it is for.

    The bounds policy does not change which implementation is best, so all policies share a record.
    """
    arch = str(target.attrs.get("arch", "")) if target.kind.name == "cuda" else ""
    key = {
        "problem": json.loads(replace(problem, bounds="drop").to_json()),
        "target": target.kind.name,
        "arch": arch,
    }
    return json.dumps(key, sort_keys=True, separators=(",", ":"))


def workload(problem: ScatterProblem, target: Any) -> tvm.IRModule:
    """The IRModule that stands for a problem in a database."""
    key = workload_key(problem, target)

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def main(out: T.Buffer((1,), "int32")) -> None:  # type: ignore[valid-type]
        T.func_attr({"global_symbol": "main", "scatter.problem": key})
        with T.sblock("scatter"):
            out[0] = 0

    return tvm.IRModule({"main": main})


def decode(trace: Any, module: tvm.IRModule) -> tuple[str, dict[str, int]] | None:
    """The implementation and knobs that a trace stands for; ``None`` for a foreign trace."""
    schedule = Schedule(module)
    trace.apply_to_schedule(schedule, remove_postproc=True)
    annotations = schedule.get(schedule.get_sblock("scatter")).annotations
    if IMPLEMENTATION not in annotations:
        return None
    config = {
        str(name)[len(KNOBS) + 1 :]: int(value)
        for name, value in annotations.items()
        if str(name).startswith(KNOBS + ".")
    }
    return str(annotations[IMPLEMENTATION]), config


def tuned_records(problem: ScatterProblem, target: Any) -> Iterator[TunedRecord]:
    """The records for a problem in the database in force, fastest first."""
    database = ms.Database.current()
    if database is None:
        return
    module = workload(problem, target)
    if not database.has_workload(module):
        return
    for record in database.get_top_k(database.commit_workload(module), _MOST_RECORDS):
        decoded = decode(record.trace, module) if record.run_secs else None
        if decoded is None:
            continue
        implementation, config = decoded
        seconds = [float(second) for second in record.run_secs]
        yield TunedRecord(implementation, config, 1e6 * sum(seconds) / len(seconds))


def best_record(problem: ScatterProblem, target: Any) -> TunedRecord | None:
    """The fastest record for a problem in the database in force, or ``None``."""
    return next(tuned_records(problem, target), None)
