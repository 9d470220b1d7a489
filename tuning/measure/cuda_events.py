"""Events of CUDA's runtime library, which tell time on the device."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from tvm_scatter.runtime.loaded_libraries import loaded_libraries


class CudaRuntime:
    """What timing needs of CUDA's runtime library."""

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
def cuda_runtime() -> CudaRuntime:
    """The CUDA runtime that TVM has loaded: a second copy would have streams of its own."""
    paths = loaded_libraries("libcudart")
    if not paths:
        raise RuntimeError("CUDA: TVM has loaded no runtime library")
    return CudaRuntime(ctypes.CDLL(paths[0]))
