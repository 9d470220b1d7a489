"""What costs assume of a CPU, about which a target says nothing, and how to measure one."""

from __future__ import annotations

import platform
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import tvm

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.selection.calibration import Calibration, Probe
from tvm_scatter.selection.machine import Machine
from tvm_scatter.selection.targets import host_target

#: A small server, on which choices were compared with measurements. The cache is that of one core.
_CPU = Machine(
    name="a CPU of 2 cores",
    multiprocessors=2,
    clock=2500.0,
    memory=2e4,
    cache_bytes=2e6,
    shared_bytes=0,
    launch=10.0,
)


def machine_of(_target: Any) -> Machine:
    """The machine of any CPU target. Choices must not depend on the CPU that compiles."""
    return _CPU


def device_name(target: Any) -> str:
    """This machine's CPU and its threads, if the target is for it or names none; else nothing."""
    named = str(target.attrs.get("mcpu", ""))
    return _here() if named in ("", str(host_target().attrs.get("mcpu", ""))) else ""


@cache
def _here() -> str:
    return f"{processor()}, threads: {_threads()}"


def processor() -> str:
    """The name of the CPU."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _threads() -> int:
    return int(tvm.get_global_func("runtime.NumThreads")())


def _device(_target: Any) -> Machine:
    # The rates of random access follow from the others.
    threads = _threads()
    return replace(
        _CPU, name=_here(), multiprocessors=threads, cached_sectors=0.0, missed_sectors=0.0
    )


def _probes(machine: Machine) -> list[Probe]:
    def sums(extent: int, count: int, **more: Any) -> ScatterProblem:
        return ScatterProblem(
            batch=SymbolicSize(),
            extents=(SymbolicSize(extent),),
            slice=SymbolicSize(),
            count=SymbolicSize(count),
            data_dtype="float32",
            index_dtype="int32",
            reduction="add",
            **more,
        )

    within = int(machine.cache_bytes) // 64
    return [
        Probe("clock", "sequential", sums(within, 1 << 20, in_place=True)),
        Probe("memory", "sequential", sums(1 << 25, 1)),
        Probe("missed_sectors", "sequential", sums(1 << 25, 1 << 21, in_place=True)),
    ]


CALIBRATION = Calibration(_device, _probes)
