"""The GPUs that costs know by name. Others are told apart by their architecture."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import tvm

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.selection.calibration import Calibration, Probe
from tvm_scatter.selection.machine import Machine

from .codegen.target import architecture, shared_memory_limit

#: Of the bandwidth that a data sheet names, a copy reaches this share: 4.26 of 4.8 TB/s on an H200.
_REACHED = 0.89
#: Microseconds between small launches whose operands are in no cache, on an H200.
_LAUNCH = 4.0
_MEASURED = ("H200",)
#: By part of a device's name: the architecture, multiprocessors, MHz, GB/s, MB of second-level
#: cache, and threads that a multiprocessor has at a time (NVIDIA's data sheets and architecture
#: white papers).
_GPUS = {
    "T4": (75, 40, 1590, 320, 4, 1024),
    "A100": (80, 108, 1410, 1555, 40, 2048),
    "A10": (86, 72, 1695, 600, 6, 1536),
    "L40S": (89, 142, 2520, 864, 96, 1536),
    "L4": (89, 58, 2040, 300, 48, 1536),
    "RTX 4090": (89, 128, 2520, 1008, 72, 1536),
    "H200": (90, 132, 1980, 4800, 50, 2048),
    "H100": (90, 132, 1980, 3350, 50, 2048),
    "B200": (100, 148, 1965, 8000, 126, 2048),
    "RTX 5090": (120, 170, 2407, 1792, 96, 1536),
}


def machine_of(target: Any) -> Machine:
    """The machine of a CUDA target: this one's device if it fits, else the first known that does.

    A target does not say which GPU it is, unless it has a name such as ``nvidia/nvidia-h100``.
    """
    return _machine(architecture(target), _tag(target), shared_memory_limit(target))


def named_machine(name: str, target: Any) -> Machine | None:
    """The machine that calls itself ``name``, as far as the table has it."""
    known = _in_table(_plain(name))
    return None if known is None else named(known, shared_memory_limit(target))


def multiprocessors(target: Any) -> int:
    """The multiprocessors of a target's GPU, which a launch shall keep busy."""
    return machine_of(target).multiprocessors


def threads_at_a_time(target: Any) -> int:
    """Threads that the machine of a target has at a time."""
    machine = machine_of(target)
    return machine.multiprocessors * machine.threads


def device_name(target: Any) -> str:
    """What this machine's GPU calls itself, if the target is for it; else nothing."""
    return _device_name(architecture(target), _tag(target))


def _tag(target: Any) -> str:
    """The name that a target was made by. TVM forgets it, but some names say what no other does."""
    return str(target.tag) or _tags().get(str(target), "")


@cache
def _tags() -> dict[str, str]:
    """The names of targets, by what they stand for, if no other one does."""
    tags: dict[str, list[str]] = {}
    for tag in tvm.target.list_tags():
        if tag.startswith("nvidia/"):
            tags.setdefault(str(tvm.target.Target(tag)), []).append(tag)
    return {text: names[0] for text, names in tags.items() if len(names) == 1}


@cache
def _machine(compute: int, tag: str, shared_bytes: int) -> Machine:
    name = _in_table(_plain(tag)) or _in_table(_device_name(compute, tag))
    if name is None:
        known = [each for each, facts in _GPUS.items() if facts[0] <= max(compute, 75)]
        newest = max(_GPUS[each][0] for each in known)
        name = next(each for each in known if _GPUS[each][0] == newest)
    machine = named(name, shared_bytes)
    if not _device_name(compute, tag):
        return machine
    # GPUs of one name differ: an H100 has 132 multiprocessors, or 114 as a PCIe card.
    return replace(
        machine, multiprocessors=int(tvm.cuda(0).multi_processor_count), cached_sectors=0.0
    )


@cache
def _device_name(compute: int, tag: str) -> str:
    device = tvm.cuda(0)
    if not device.exist or int(str(device.compute_version).replace(".", "")) != compute:
        return ""
    name, asked = str(device.device_name), _in_table(_plain(tag))
    return name if asked is None or asked == _in_table(name) else ""


def _plain(tag: str) -> str:
    return tag.upper().replace("-", " ")


def _in_table(text: str) -> str | None:
    return next((known for known in _GPUS if known in text), None)


def named(name: str, shared_bytes: int) -> Machine:
    """A machine of the table."""
    _, multiprocessors, clock, memory, cache_megabytes, threads = _GPUS[name]
    return Machine(
        name=f"NVIDIA {name}",
        multiprocessors=multiprocessors,
        clock=float(clock),
        memory=memory * 1e3 * _REACHED,
        cache_bytes=cache_megabytes * 1e6,
        shared_bytes=shared_bytes,
        launch=_LAUNCH,
        threads=threads,
        measured=name in _MEASURED,
    )


def _device(target: Any) -> Machine:
    device = tvm.cuda(0)
    assumed = machine_of(target)
    return replace(
        assumed,
        name=str(device.device_name),
        # TVM tells kilohertz.
        clock=float(device.max_clock_rate or 0) / 1e3 or assumed.clock,
        cache_bytes=float(device.l2_cache_size_bytes or assumed.cache_bytes),
        # These follow from the others.
        cached_sectors=0.0,
        missed_sectors=0.0,
        measured=False,
    )


#: Rows of the tensor that is copied, and the updates of the sums.
_ROWS = 1024
_UPDATES = 1 << 22
#: Bytes that are copied; how many times the cache the outputs of the sums are.
_COPIED_BYTES = 1 << 29
_WITHIN, _BEYOND = 0.25, 4.0


def _probes(machine: Machine) -> list[Probe]:
    def sums(extent: int, count: int, width: int = 1, in_place: bool = True) -> ScatterProblem:
        return ScatterProblem(
            batch=SymbolicSize(),
            extents=(SymbolicSize(extent),),
            slice=SymbolicSize(width),
            count=SymbolicSize(count),
            data_dtype="float32",
            index_dtype="int32",
            reduction="add",
            in_place=in_place,
        )

    within, beyond = (int(machine.cache_bytes * part) // 4 for part in (_WITHIN, _BEYOND))
    copied = sums(_ROWS, 1, _COPIED_BYTES // _ROWS // 4, in_place=False)
    return [
        Probe("launch", "parallel_injective", sums(1000, 1)),
        Probe("memory", "parallel_injective", copied),
        Probe("cached_sectors", "parallel_injective", sums(within, _UPDATES)),
        Probe("missed_sectors", "parallel_injective", sums(beyond, _UPDATES)),
    ]


CALIBRATION = Calibration(_device, _probes)
