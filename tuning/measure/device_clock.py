"""Clocks: seconds that a function of a library takes on a device."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tvm

#: Written in front of a call that shall find its operands in no cache. On a GPU this also keeps the
#: device busy while the host enqueues the call, so that the host's part does not show.
FLUSH_BYTES = {"cuda": 1 << 30, "llvm": 1 << 26}
#: Enough calls for a median, few enough that a thousand candidates take minutes.
MOST_CALLS = 10
FEWEST_CALLS = 3
SECONDS = 0.25

Call = Callable[[], Any]


def sample(measure: Callable[[], float]) -> list[float]:
    """Seconds of a few measurements."""
    samples: list[float] = []
    begin = time.perf_counter()
    while True:
        samples.append(max(measure(), 1e-9))
        spent = time.perf_counter() - begin
        # What takes so long is no close call.
        enough = FEWEST_CALLS if spent < 4 * SECONDS else 1
        if len(samples) >= MOST_CALLS or (len(samples) >= enough and spent >= SECONDS):
            return samples


def time_on_host(call: Call, prepare: Call, cold: bool) -> list[float]:
    """Seconds of calls on this machine's CPU."""

    def measure() -> float:
        prepare()
        if cold:
            _host_flush().fill(1)
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin

    call()
    return sample(measure)


def time_on_gpu(call: Call, prepare: Call, cold: bool, device: Any) -> list[float]:
    """Seconds of calls on this machine's GPU, from the first kernel's start to the last one's end.

    Taken by events on CUDA's default stream, the one TVM launches on.
    """
    runtime = _cuda_runtime()
    start, stop = runtime.event(), runtime.event()
    flush = _gpu_flush(device, FLUSH_BYTES["cuda"] if cold else _WARM_BYTES)

    def measure() -> float:
        prepare()
        if not cold:
            call()
            prepare()
        flush()
        runtime.record(start)
        call()
        runtime.record(stop)
        return runtime.seconds(start, stop)

    prepare()
    call()
    device.sync()
    return sample(measure)


#: Too little to displace the operands from a cache, enough to cover a launch or two.
_WARM_BYTES = 1 << 22


def time_behind_rpc(
    library: Any, function: str, arguments: list[Any], device: Any, prepare: Call, cold: bool
) -> list[float]:
    """Seconds of calls on a device behind an RPC connection, by TVM's own evaluator.

    The evaluator makes one call that it does not count; a problem that is in place sees its data
    changed by it.
    """
    kind = "cuda" if device.dlpack_device_type() % 128 == _CUDA else "llvm"
    evaluator = library.time_evaluator(
        function, device, number=1, repeat=1, cache_flush_bytes=FLUSH_BYTES[kind] if cold else 0
    )

    def measure() -> float:
        prepare()
        return float(evaluator(*arguments).mean)

    return sample(measure)


_CUDA = 2


@cache
def _gpu_flush(device: Any, size: int) -> Call:
    """Moves ``size`` bytes on the default stream, and does not wait for it."""
    source, target = (tvm.runtime.empty((size // 2,), "uint8", device) for _ in range(2))
    return lambda: source.copyto(target)


@cache
def _host_flush() -> Any:
    return np.empty(FLUSH_BYTES["llvm"], np.uint8)


class _CudaRuntime:
    """Events of CUDA's runtime library."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def _check(self, status: int) -> None:
        if status:
            self._library.cudaGetErrorString.restype = ctypes.c_char_p
            raise RuntimeError(f"CUDA: {self._library.cudaGetErrorString(status).decode()}")

    def event(self) -> ctypes.c_void_p:
        """A new event."""
        event = ctypes.c_void_p()
        self._check(self._library.cudaEventCreate(ctypes.byref(event)))
        return event

    def record(self, event: ctypes.c_void_p) -> None:
        """Let the default stream record an event."""
        self._check(self._library.cudaEventRecord(event, None))

    def seconds(self, start: ctypes.c_void_p, stop: ctypes.c_void_p) -> float:
        """Between two events, once the second has happened."""
        self._check(self._library.cudaEventSynchronize(stop))
        milliseconds = ctypes.c_float()
        elapsed = self._library.cudaEventElapsedTime
        self._check(elapsed(ctypes.byref(milliseconds), start, stop))
        return 1e-3 * milliseconds.value


@cache
def _cuda_runtime() -> _CudaRuntime:
    """The CUDA runtime that TVM has loaded: a second copy would have streams of its own."""
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    paths = {line.split(maxsplit=5)[5] for line in mapped if "libcudart" in line}
    if not paths:
        raise RuntimeError("CUDA: TVM has loaded no runtime library")
    return _CudaRuntime(ctypes.CDLL(sorted(paths)[0]))
