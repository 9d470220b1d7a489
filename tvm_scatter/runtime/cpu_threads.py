"""How many threads TVM runs on, and on how many cores it could."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import tvm

_CPUS = Path("/sys/devices/system/cpu")
#: Of a container: microseconds of CPU time, or a word if it may have all, and in how many.
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def threads_of_tvm() -> int:
    """The threads among which TVM shares a parallel loop.

    Unless ``TVM_NUM_THREADS`` or ``OMP_NUM_THREADS`` says how many, these are half of the logical
    CPUs on x86, whether two of them share a core or not.
    """
    return int(tvm.get_global_func("runtime.NumThreads")())


def usable_cores() -> int | None:
    """The cores that this process may run on; ``None`` if the system does not say."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    try:
        siblings = {_siblings(cpu) for cpu in os.sched_getaffinity(0)}
    except OSError:
        return None
    return min(len(siblings), _quota())


def _siblings(cpu: int) -> str:
    """The logical CPUs that share a core with one, as text."""
    return (_CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text()


def _quota() -> int:
    """The most CPUs' time that a container may have, rounded up."""
    try:
        quota, period = map(int, _QUOTA.read_text().split())
    except (OSError, ValueError):
        # There is no such file, or no quota.
        return sys.maxsize
    return -(-quota // period)


def in_words(threads: int, cores: int | None) -> str:
    """How many threads TVM runs on, and what to do if there are more cores."""
    said = f"TVM uses {threads} thread{'' if threads == 1 else 's'}"
    if cores is None or threads >= cores:
        return said
    return f"{said}, and there are {cores} cores; set TVM_NUM_THREADS={cores} to use them"
