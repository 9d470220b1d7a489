"""What the host asked of the simulated device, for tests that count."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from dataclasses import dataclass

_KINDS = (
    "launch",
    "copy_to_device",
    "copy_to_host",
    "copy_on_device",
    "synchronize",
    "allocate",
    "free",
    "graph_launch",
)
_CAPTURED = ("now", "captured", "replayed")


class _Entry(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int),
        ("captured", ctypes.c_int),
        ("name", ctypes.c_char * 256),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("overlapped", ctypes.c_int),
        ("bytes", ctypes.c_uint64),
    ]


@dataclass(frozen=True)
class Event:
    """One call that reached the driver.

    `mode` is "now", "captured" (recorded into a CUDA graph and not run) or "replayed" (run from a
    graph). `bytes` is what was copied or allocated, or a launch's dynamic shared memory. A launch
    that is `overlapped` need not wait for the one before it.
    """

    kind: str
    name: str
    mode: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    bytes: int
    overlapped: bool


class Log:
    """The events since :func:`record` began; complete once its ``with`` block has ended."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    @property
    def launches(self) -> list[Event]:
        """Kernels that ran, whether at once or from a graph."""
        return [e for e in self.events if e.kind == "launch" and e.mode != "captured"]

    @property
    def kernels(self) -> list[str]:
        """The names of the kernels that ran, in order."""
        return [e.name for e in self.launches]

    def count(self, kind: str) -> int:
        """How many events of a kind there were, for example ``count("synchronize")``."""
        if kind not in _KINDS:
            raise ValueError(f"no such kind of event: {kind}; there are {', '.join(_KINDS)}")
        return sum(e.kind == kind for e in self.events)


def _read(library: ctypes.CDLL) -> list[Event]:
    library.cpu_cuda_log_size.restype = ctypes.c_size_t
    events, raw = [], _Entry()
    for i in range(library.cpu_cuda_log_size()):
        library.cpu_cuda_log_get(ctypes.c_size_t(i), ctypes.byref(raw))
        events.append(
            Event(
                _KINDS[raw.kind],
                raw.name.decode(),
                _CAPTURED[raw.captured],
                tuple(raw.grid),
                tuple(raw.block),
                raw.bytes,
                bool(raw.overlapped),
            )
        )
    return events


@contextlib.contextmanager
def record_from(library: ctypes.CDLL) -> Iterator[Log]:
    """Records what reaches the driver `library` within the ``with`` block. Does not nest."""
    log = Log()
    library.cpu_cuda_log_clear()
    try:
        yield log
    finally:
        log.events = _read(library)
        library.cpu_cuda_log_clear()
