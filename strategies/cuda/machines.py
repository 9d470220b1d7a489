"""The GPUs that costs know by name. Others are told apart by their architecture."""

from __future__ import annotations

from functools import cache
from typing import Any

import tvm

from tvm_scatter.selection.machine import Machine

from .codegen.target import architecture, shared_memory_limit

#: Of the bandwidth that a data sheet names, a copy reaches this share: 4.26 of 4.8 TB/s on an H200.
_REACHED = 0.89
#: Microseconds between small launches whose operands are in no cache, on an H200.
_LAUNCH = 4.0
_MEASURED = ("H200",)
#: By part of a device's name: the architecture, multiprocessors, MHz, GB/s, and MB of second-level
#: cache (NVIDIA's data sheets and architecture white papers).
_GPUS = {
    "T4": (75, 40, 1590, 320, 4),
    "A100": (80, 108, 1410, 1555, 40),
    "A10": (86, 72, 1695, 600, 6),
    "L40S": (89, 142, 2520, 864, 96),
    "L4": (89, 58, 2040, 300, 48),
    "RTX 4090": (89, 128, 2520, 1008, 72),
    "H200": (90, 132, 1980, 4800, 50),
    "H100": (90, 132, 1980, 3350, 50),
    "B200": (100, 148, 1965, 8000, 126),
    "RTX 5090": (120, 170, 2407, 1792, 96),
}


def machine_of(target: Any) -> Machine:
    """The machine of a CUDA target: this one's device if it fits, else the first known that does.

    A target does not say which GPU it is, unless it has a name such as ``nvidia/nvidia-h100``.
    """
    return _machine(architecture(target), str(target.tag), shared_memory_limit(target))


@cache
def _machine(compute: int, tag: str, shared_bytes: int) -> Machine:
    asked = tag.upper().replace("-", " ")
    name = next((known for known in _GPUS if known in asked), None) or _here(compute)
    if name is None:
        known = [each for each, facts in _GPUS.items() if facts[0] <= max(compute, 75)]
        newest = max(_GPUS[each][0] for each in known)
        name = next(each for each in known if _GPUS[each][0] == newest)
    return named(name, shared_bytes)


def named(name: str, shared_bytes: int) -> Machine:
    """A machine of the table."""
    _, multiprocessors, clock, memory, cache_megabytes = _GPUS[name]
    return Machine(
        name=f"NVIDIA {name}",
        multiprocessors=multiprocessors,
        clock=float(clock),
        memory=memory * 1e3 * _REACHED,
        cache_bytes=cache_megabytes * 1e6,
        shared_bytes=shared_bytes,
        launch=_LAUNCH,
        measured=name in _MEASURED,
    )


def _here(compute: int) -> str | None:
    device = tvm.cuda(0)
    if not device.exist or int(str(device.compute_version).replace(".", "")) != compute:
        return None
    return next((known for known in _GPUS if known in str(device.device_name)), None)
