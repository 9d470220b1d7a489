"""The functions of CUDA's driver that capture and replay graphs.

TVM's own graph functions can only be called from inside a compiled module.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from tvm_scatter.errors import ScatterError

from .loaded_libraries import loaded_libraries

_LIBRARY = "libcuda.so.1"
_THREAD_LOCAL = 1
#: A stream that synchronises with the default stream. Work on the default stream during a capture
#: is then an error.
_BLOCKING_STREAM = 0
_Handle = ctypes.c_void_p


class Graph:
    """A captured graph, ready to launch."""

    def __init__(self, handle: _Handle) -> None:
        self._executable = _Handle()
        try:
            _call("cuGraphInstantiateWithFlags", _by_reference(self._executable), handle, _flags(0))
        finally:
            _call("cuGraphDestroy", handle)
        self._context = _Handle()
        _call("cuCtxGetCurrent", _by_reference(self._context))

    def launch(self, stream: int) -> None:
        """Launch the graph on a stream."""
        _call("cuGraphLaunch", self._executable, _Handle(stream))

    def enter(self) -> None:
        """Make the CUDA context of the capture current in this thread."""
        _call("cuCtxSetCurrent", self._context)

    def __del__(self) -> None:
        if self._executable:
            _library().cuGraphExecDestroy(self._executable)


def copy(to: int, source: int, size: int, stream: int) -> None:
    """Copy bytes between any two addresses, of host or device, in stream order."""
    if size:
        _call("cuMemcpyAsync", _Handle(to), _Handle(source), ctypes.c_size_t(size), _Handle(stream))


@contextmanager
def new_stream() -> Iterator[int]:
    """A new stream, destroyed at the end of the block."""
    stream = _Handle()
    _call("cuStreamCreate", _by_reference(stream), ctypes.c_uint(_BLOCKING_STREAM))
    try:
        yield int(stream.value or 0)
    finally:
        _call("cuStreamDestroy_v2", stream)


def captured(stream: int, work: Callable[[], None]) -> Graph:
    """Capture the kernels that ``work`` launches on a stream, without running them.

    Raises
    ------
    Exception
        Any exception of ``work``; ScatterError if it did something that a graph cannot hold.
    """
    _call("cuStreamBeginCapture_v2", _Handle(stream), ctypes.c_int(_THREAD_LOCAL))
    graph = _Handle()
    try:
        work()
    except BaseException:
        _library().cuStreamEndCapture(_Handle(stream), _by_reference(graph))
        _forget_runtime_errors()
        raise
    _call("cuStreamEndCapture", _Handle(stream), _by_reference(graph))
    return Graph(graph)


def _forget_runtime_errors() -> None:
    """Clear the last error that CUDA's runtime remembers.

    Others that ask for it, as PyTorch does after each launch, would report it as theirs.
    """
    for path in loaded_libraries("libcudart"):
        ctypes.CDLL(path).cudaGetLastError()


@cache
def _library() -> Any:
    try:
        return ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise ScatterError(f"CUDA graphs need {_LIBRARY}: {error}.") from error


def _by_reference(handle: _Handle) -> Any:
    return ctypes.byref(handle)


def _flags(value: int) -> ctypes.c_ulonglong:
    return ctypes.c_ulonglong(value)


def _call(name: str, *arguments: Any) -> None:
    library = _library()
    status = getattr(library, name)(*arguments)
    if status != 0:
        text = ctypes.c_char_p()
        library.cuGetErrorName(status, ctypes.byref(text))
        reason = text.value.decode() if text.value else f"error {status}"
        raise ScatterError(f"{name}: {reason}.")
