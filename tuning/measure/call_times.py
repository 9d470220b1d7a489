"""The times of one call that the benchmark shows: on the device, and between calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import device_time, wall_time
from .sampling import Budget, Summary

_ON_GPU = Budget(fewest=3, most=20, seconds=1.0, patience=0.25)
_ON_CPU = Budget(fewest=3, most=20, seconds=0.5, patience=2.0)
#: About so many seconds go into the calls between which nothing waits.
_ROW_SECONDS = 0.2
_MICROSECONDS = 1e6


@dataclass(frozen=True)
class CallTimes:
    """Microseconds of one call.

    Attributes
    ----------
    device : float
        Median time on the device, from the first kernel's start to the last one's end, with caches
        that hold nothing of the operands on a GPU, and as the call before left them on a CPU.
    spread : float
        Interquartile range of the same.
    wall : float
        Median time between calls that are made one after another: what a caller sees.
    """

    device: float
    spread: float
    wall: float


def _of(samples: list[float], wall: float | None = None) -> CallTimes:
    summary = Summary.of([_MICROSECONDS * seconds for seconds in samples])
    return CallTimes(summary.median, summary.spread, summary.median if wall is None else wall)


def on_gpu(call: Callable[[], Any], budget: Budget = _ON_GPU) -> CallTimes:
    """Time a call whose work goes to CUDA's default stream.

    In front of each call a gigabyte is written, which empties the L2 cache and keeps the GPU busy
    while the host enqueues the call, so that launch overhead of the host does not show.
    """
    import torch

    synchronize = torch.cuda.synchronize
    flush = torch.empty(device_time.FLUSH_BYTES["cuda"], dtype=torch.uint8, device="cuda")
    samples = device_time.on_gpu(call, flush.zero_, synchronize, budget=budget)
    if samples[0] > budget.patience:
        return _of(samples)
    calls = max(1, min(20, int(_ROW_SECONDS / samples[-1])))
    between = wall_time.between_calls(call, synchronize, calls, rounds=3)
    return _of(samples, _MICROSECONDS * Summary.of(between).median)


def on_cpu(call: Callable[[], Any]) -> CallTimes:
    """Time a call on the host; the caches are as the call before left them."""
    return _of(device_time.on_cpu(call, budget=_ON_CPU))


def copy_bandwidth(device: str) -> float:
    """Bytes per microsecond of a large copy, counting bytes read and bytes written."""
    import torch

    size = (1 << 31) if device == "cuda" else (1 << 27)
    # Memory that was never written reads as one page of zeros, from the nearest cache.
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    times = on_gpu if device == "cuda" else on_cpu
    return 2 * size / times(lambda: target.copy_(source)).device
