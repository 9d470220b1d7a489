"""Runs the CUDA that TVM generates on the CPU, for tests without a GPU; see README.md.

This module is the entry: what it lists is all that users need. ::

    from cuda_on_cpu import enable, record, schedule, status

    enable()  # at the top of conftest.py, before anything imports tvm
"""

from .driver import (
    Status,
    child_environment,
    compile_cuda,
    enable,
    memory_in_use,
    real_gpu,
    record,
    schedule,
    set_memory_limit,
    set_time_limit,
    status,
)
from .log import Event, Log
from .sanitizers import run_with_sanitizers, sanitizers_available

__all__ = [
    "Event",
    "Log",
    "Status",
    "child_environment",
    "compile_cuda",
    "enable",
    "memory_in_use",
    "real_gpu",
    "record",
    "run_with_sanitizers",
    "sanitizers_available",
    "schedule",
    "set_memory_limit",
    "set_time_limit",
    "status",
]
