"""Timing on a device and on the host."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

_FLUSH_BYTES = 1 << 30
#: Microseconds beyond which one call is enough: what varies is small against it.
_LONG = 2.5e5
#: Calls that nobody times, where a call is not made to find its operands in no cache.
_WARM_UP = 5


@dataclass(frozen=True)
class Timing:
    """Microseconds of one call.

    Attributes
    ----------
    device : float
        Median time on the device, from the first kernel's start to the last one's end, with caches
        that hold nothing of the operands.
    spread : float
        Interquartile range of the same.
    wall : float
        Median time between calls that are made one after another: what a caller sees.
    """

    device: float
    spread: float
    wall: float


def _summary(samples: list[float], wall: float | None = None) -> Timing:
    low, middle, high = np.percentile(samples, [25, 50, 75])
    return Timing(float(middle), float(high - low), float(middle) if wall is None else wall)


def time_on_gpu(call: Callable[[], Any], repeats: int = 20, seconds: float = 1.0) -> Timing:
    """Time a call whose work goes to CUDA's default stream, by events.

    In front of each call a gigabyte is written, which empties the L2 cache and keeps the GPU busy
    while the host enqueues the call, so that launch overhead of the host does not show.
    """
    import torch

    flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    # Events are created when they are first recorded, which must not be timed where a call waits.
    start.record()
    call()
    stop.record()
    torch.cuda.synchronize()
    samples: list[float] = []
    begin = time.perf_counter()
    while len(samples) < repeats and (len(samples) < 3 or time.perf_counter() - begin < seconds):
        flush.zero_()
        start.record()
        call()
        stop.record()
        torch.cuda.synchronize()
        samples.append(1000 * start.elapsed_time(stop))
        if samples[0] > _LONG:
            return _summary(samples)
    calls = max(1, min(20, int(2e5 / max(samples[-1], 1.0))))
    wall = time_in_a_row(call, torch.cuda.synchronize, calls, rounds=3)
    return _summary(samples, wall)


def time_on_cpu(call: Callable[[], Any], repeats: int = 20, seconds: float = 0.5) -> Timing:
    """Time a call on the host; the caches are as the call before left them.

    A call that takes much longer than ``seconds`` is made once: warming up does not show in it.
    """
    samples: list[float] = []
    begin = time.perf_counter()
    while len(samples) < 1 + repeats and (
        len(samples) < 4 or time.perf_counter() - begin < seconds
    ):
        start = time.perf_counter()
        call()
        samples.append(1e6 * (time.perf_counter() - start))
        if samples[0] > 4e6 * seconds:
            return _summary(samples)
    return _summary(samples[1:])


def copy_bandwidth(device: str) -> float:
    """Bytes per microsecond of a large copy, counting bytes read and bytes written."""
    import torch

    size = (1 << 31) if device == "cuda" else (1 << 27)
    # Memory that was never written reads as one page of zeros, from the nearest cache.
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    timing = time_on_gpu if device == "cuda" else time_on_cpu
    return 2 * size / timing(lambda: target.copy_(source)).device


def time_in_a_row(
    call: Callable[[], Any], synchronize: Callable[[], Any], calls: int = 50, rounds: int = 9
) -> float:
    """The median microseconds of one of many calls that follow each other.

    Nothing waits but what a call itself waits for, until all are done. Caches are as the call
    before left them.
    """
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        synchronize()
        times.append(1e6 * (time.perf_counter() - begin) / calls)
    return float(np.median(times))


def time_to_result(
    call: Callable[[], Any], synchronize: Callable[[], Any], calls: int = 50
) -> float:
    """The median microseconds of a call and of waiting for it.

    Caches are as the call before left them.
    """
    times = []
    for _ in range(_WARM_UP):
        call()
    synchronize()
    for _ in range(calls):
        begin = time.perf_counter()
        call()
        synchronize()
        times.append(1e6 * (time.perf_counter() - begin))
    return float(np.median(times))
