"""What costs assume of a CPU, about which a target says nothing."""

from __future__ import annotations

from typing import Any

from tvm_scatter.selection.machine import Machine

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
