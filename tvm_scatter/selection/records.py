"""Tuned records: how a measurement is written to, found in, and read from a MetaSchedule database.

A record's workload is an IRModule with one schedulable block that carries the problem as text. Its
trace annotates that block with the implementation, its knobs (as sampled decisions) and the
circumstances of the measurement, so an ordinary MetaSchedule database holds everything and TVM's
own tools can read it.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from statistics import geometric_mean, median_high
from typing import Any

import tvm
import tvm_ffi
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.script import tirx as T

from tvm_scatter.errors import ScatterError, ScatterWarning
from tvm_scatter.problem.plain_data import parse
from tvm_scatter.problem.scatter_problem import ScatterProblem

from .backend import backend_of
from .workload_form import PROBLEM, hash_and_problem

IMPLEMENTATION = "scatter.implementation"
KNOBS = "scatter.knobs"
CIRCUMSTANCES = "scatter.measured"
#: More records than any problem has: all of them are asked for.
_ALL = 1 << 20


@dataclass(frozen=True)
class Decision:
    """The measured candidate that a trace describes.

    Attributes
    ----------
    implementation : str
        The implementation's name.
    config : mapping of str to int
        Its knobs.
    circumstances : mapping of str to str
        How it was measured: ``distribution`` and ``seed`` of the indices, ``cache`` (``cold`` or
        ``warm``) and, for symbolic problems, ``sizes``.
    """

    implementation: str
    config: Mapping[str, int] = field(default_factory=dict)
    circumstances: Mapping[str, str] = field(default_factory=dict)

    @property
    def candidate(self) -> tuple[str, tuple[tuple[str, int], ...]]:
        """Implementation and knobs, as a hashable key."""
        return self.implementation, tuple(sorted(self.config.items()))

    @property
    def circumstance(self) -> tuple[tuple[str, str], ...]:
        """The circumstances, as a hashable key."""
        return tuple(sorted(self.circumstances.items()))


#: The name of an implementation and its knobs.
Way = tuple[str, Mapping[str, int]]
#: Whether a problem may be computed in such a way.
Usable = Callable[[Way], bool]


@dataclass(frozen=True)
class TunedRecord:
    """A measured candidate: implementation, knobs and time in microseconds."""

    implementation: str
    config: Mapping[str, int]
    microseconds: float

    @property
    def way(self) -> Way:
        """Implementation and knobs."""
        return self.implementation, self.config


def workload_key(problem: ScatterProblem, target: Any) -> str:
    """The text that identifies a problem and an architecture in a database.

    The bounds policy is left out: it does not change which implementation is fastest.
    """
    return _key(problem, str(target.kind.name), architecture(target))


def _key(problem: ScatterProblem, kind: str, arch: str) -> str:
    plain = json.loads(replace(problem, bounds="drop").to_json())
    key = {"problem": plain, "target": kind, "arch": arch}
    return json.dumps(key, sort_keys=True, separators=(",", ":"))


def architecture(target: Any) -> str:
    """The architecture that records for a target apply to; empty if to all targets of its kind."""
    return backend_of(target).architecture(target)


def workload(problem: ScatterProblem, target: Any) -> tvm.IRModule:
    """The IRModule that represents a problem in a database."""
    return _workload(workload_key(problem, target))


@lru_cache(maxsize=1024)
def _workload(key: str) -> tvm.IRModule:
    return tvm.IRModule({"main": _placeholder().with_attr(PROBLEM, key)})


# Parsed once: TVMScript takes as long to parse as a small kernel to compile.
@cache
def _placeholder() -> tvm.tirx.PrimFunc:
    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def main(out: T.Buffer((1,), "int32")) -> None:  # type: ignore[valid-type]
        T.func_attr({"global_symbol": "main"})
        with T.sblock("scatter"):
            out[0] = 0

    return main


def problem_of(module: tvm.IRModule) -> tuple[ScatterProblem, str, str] | None:
    """The problem, target kind and architecture of a workload; ``None`` if it is not a scatter's.

    Raises
    ------
    ScatterError
        If the problem has another format version, or is damaged.
    """
    main = next(iter(module.functions.values()), None)
    attrs = getattr(main, "attrs", None)
    return None if attrs is None or PROBLEM not in attrs else _identified(str(attrs[PROBLEM]))


def workload_again(described: Any) -> tvm.IRModule | None:
    """The workload for an entry of a database file; ``None`` if it is not a scatter's.

    Parameters
    ----------
    described : plain data
        The entry, parsed from JSON. It is not trusted: the workload is made anew from the problem
        that it names, and TVM never reads the entry itself.

    Raises
    ------
    ScatterError
        If the entry has another format version, or is damaged.
    """
    said = hash_and_problem(described)
    if said is None:
        return None
    written, text = said
    module = _workload(_key(*_identified(text)))
    if written != workload_hash(module):
        raise ScatterError("records: a workload cannot be read: its hash is another's.")
    return module


def workload_hash(module: tvm.IRModule) -> str:
    """The hash that MetaSchedule stores with a workload."""
    return str(tvm_ffi.structural_hash(module) % (1 << 64))


def _identified(text: str) -> tuple[ScatterProblem, str, str]:
    """The inverse of :func:`workload_key`."""
    try:
        key = parse(text)
        kind, arch = str(key["target"]), str(key["arch"])
        return ScatterProblem.from_json(json.dumps(key["problem"])), kind, arch
    except (ValueError, KeyError, TypeError) as error:
        raise ScatterError(f"records: a workload cannot be read: {error}.") from error


def schedule(
    module: tvm.IRModule,
    implementation: str,
    knobs: Mapping[str, Sequence[int]],
    config: Mapping[str, int] | None = None,
    circumstances: Mapping[str, str] | None = None,
) -> Schedule:
    """The schedule whose trace describes a candidate.

    Parameters
    ----------
    module : IRModule
        The module that :func:`workload` returned.
    knobs : mapping of str to sequence of int
        The values that each knob can have.
    config : mapping of str to int, optional
        The value that each knob has; without it the decisions are sampled.
    """
    result = Schedule(module)
    block = result.get_sblock("scatter")
    result.annotate(block, IMPLEMENTATION, implementation)
    for name, values in knobs.items():
        decision = None if config is None else list(values).index(config[name])
        sampled = result.sample_categorical(
            list(values), [1.0 / len(values)] * len(values), decision=decision
        )
        result.annotate(block, f"{KNOBS}.{name}", sampled)
    for name, text in (circumstances or {}).items():
        result.annotate(block, f"{CIRCUMSTANCES}.{name}", text)
    return result


def decode(trace: Any) -> Decision | None:
    """The candidate that a trace describes; ``None`` if it is not a scatter's.

    Raises
    ------
    ScatterError
        If it is damaged.
    """
    sampled: dict[Any, int] = {}
    marks: dict[str, Any] = {}
    try:
        for step in trace.insts:
            kind = str(step.kind.name)
            if kind == "SampleCategorical" and step in trace.decisions:
                sampled[step.outputs[0]] = int(step.attrs[0][int(trace.decisions[step])])
            elif kind == "Annotate":
                value = step.inputs[1]
                marks[str(step.attrs[0])] = sampled.get(value, value)
    except Exception as error:  # TVM raises many kinds of errors for a malformed trace
        raise ScatterError(f"records: its trace cannot be read: {error}.") from error
    if IMPLEMENTATION not in marks:
        return None
    return Decision(
        str(marks[IMPLEMENTATION]),
        {name: _knob(name, value) for name, value in _below(marks, KNOBS)},
        {name: str(value) for name, value in _below(marks, CIRCUMSTANCES)},
    )


def completed(config: Mapping[str, int], knobs: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The knobs of a record, with those that are newer than it and have one value only.

    Such a knob leaves the program as it was. What another one stands for, the record does not say.
    """
    return {name: values[0] for name, values in knobs.items() if len(values) == 1} | dict(config)


def _knob(name: str, value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = -1
    if number < 0:
        raise ScatterError(f"records: its knob {name} is {str(value)!r}, no whole number.")
    return number


def _below(marks: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    return [
        (name[len(prefix) + 1 :], value)
        for name, value in marks.items()
        if name.startswith(prefix + ".")
    ]


def tuned_records(
    problem: ScatterProblem, target: Any, usable: Usable | None = None
) -> list[TunedRecord]:
    """The measured candidates of a problem in the current database, as :func:`records_in`."""
    database = ms.Database.current()
    return [] if database is None else records_in(database, problem, target, usable)


def records_in(
    database: Any, problem: ScatterProblem, target: Any, usable: Usable | None = None
) -> list[TunedRecord]:
    """The measured candidates of a problem in a database, fastest first.

    Candidates may have been measured under several circumstances. Only those that were measured
    under the most circumstances count, by the geometric mean of their times. So no candidate wins
    because its hardest case is missing.

    Parameters
    ----------
    usable : callable, optional
        Whether a candidate counts at all.
    """
    module = workload(problem, target)
    if not database.has_workload(module):
        return []
    timed = []
    for record in database.get_top_k(database.commit_workload(module), _ALL):
        try:
            said = measurement(record)
        except ScatterError as error:
            passed_over(f"a record of [{problem}]", error)
        else:
            timed += [] if said is None else [(said[0], typical(said[1]))]
    return ranking(timed, usable)


def measurement(record: Any) -> tuple[Decision, list[float]] | None:
    """The candidate and the measured seconds of a record; ``None`` if it is not a scatter's.

    Raises
    ------
    ScatterError
        If it is damaged.
    """
    decision = decode(record.trace)
    if decision is None or not record.run_secs:
        return None
    return decision, positive(record.run_secs)


def positive(seconds: Iterable[Any]) -> list[float]:
    """Measured times in seconds, as floats.

    Raises
    ------
    ScatterError
        If one of them is not a positive finite number.
    """
    times = [float(second) for second in seconds]
    for time in times:
        if not 0 < time < math.inf:
            raise ScatterError(f"records: its time is {time} s, no positive number.")
    return times


def passed_over(what: str, error: Exception) -> None:
    """Warn that a damaged entry is ignored."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    reason = lines[-1].removeprefix("records: ").rstrip(".")
    warnings.warn(f"{what} is passed over: {reason}.", ScatterWarning, stacklevel=3)


def typical(seconds: Iterable[float]) -> float:
    """The (upper) median of several measurements, in microseconds."""
    return 1e6 * median_high(seconds)


def ranking(
    timed: Iterable[tuple[Decision, float]], usable: Usable | None = None
) -> list[TunedRecord]:
    """Measured candidates, fastest first by the rule of :func:`records_in`, then by name."""
    times: dict[Any, dict[Any, float]] = {}
    for decision, microseconds in timed:
        seen = times.setdefault(decision.candidate, {})
        circumstance = decision.circumstance
        seen[circumstance] = min(microseconds, seen.get(circumstance, microseconds))
    if usable is not None:
        times = {each: seen for each, seen in times.items() if usable((each[0], dict(each[1])))}
    most = max(map(len, times.values()), default=0)
    ranked = [
        TunedRecord(implementation, dict(config), geometric_mean(seen.values()))
        for (implementation, config), seen in times.items()
        if len(seen) == most
    ]
    return sorted(
        ranked,
        key=lambda each: (each.microseconds, each.implementation, sorted(each.config.items())),
    )
