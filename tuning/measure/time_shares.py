"""Where the time of a compiled model goes: products, gathers, scatters, orders, and the rest."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax

from .cuda_events import cuda_runtime

_RUNS = 5
#: Words in the names of functions by which a kind is known; a fused function has several names.
_KINDS = {
    "scatters": ("scatter_", "check_indices"),
    "orders": ("order",),
    "products": ("matmul", "grouped_product"),
    "gathers": ("index", "take", "gather", "embedding", "select"),
}
KINDS = (*_KINDS, "rest")


def time_shares(
    executable: Any,
    inputs: Sequence[Any],
    device: Any = None,
    prepare: Callable[[], Any] = lambda: None,
) -> dict[str, float]:
    """The part of the time that each kind of function takes, in the fastest of runs.

    Parameters
    ----------
    executable : tvm.runtime.Executable
        A model.
    inputs : sequence of tvm.runtime.Tensor
        Its inputs on the device.
    device : tvm.runtime.Device, optional
        By default this CPU.
    prepare : callable
        Called before each run, such as to let a GPU be busy until all of the run is enqueued.

    Returns
    -------
    shares : dict of str to float
        For each of :data:`KINDS`, a number from 0 to 1.
    """
    device = tvm.cpu() if device is None else device
    machine = relax.VirtualMachine(executable, device)
    clock = _HostClock() if device.dlpack_device_type() == _CPU else _DeviceClock()
    began: list[Any] = []
    spent: list[tuple[str, Any, Any]] = []

    def instrument(_function: Any, name: str, before: bool, *_more: Any) -> int:
        if before:
            began.append(clock.now())
        else:
            spent.append((kind_of(name), began.pop(), clock.now()))
        return 0

    machine.set_instrument(instrument)
    runs = []
    for _ in range(_RUNS):
        spent.clear()
        prepare()
        machine["main"](*inputs)
        run: defaultdict[str, float] = defaultdict(float)
        for kind, start, stop in spent:
            run[kind] += clock.seconds(start, stop)
        runs.append(run)
    best = min(runs, key=lambda run: sum(run.values()))
    total = sum(best.values())
    return {kind: best.get(kind, 0.0) / total for kind in KINDS}


def kind_of(name: str) -> str:
    """The kind of a function of a compiled model, by its name."""
    return next((kind for kind, words in _KINDS.items() if any(w in name for w in words)), "rest")


_CPU = tvm.cpu().dlpack_device_type()


class _HostClock:
    """Time on the host, which computes itself."""

    def now(self) -> float:
        return time.perf_counter()

    def seconds(self, start: float, stop: float) -> float:
        return stop - start


class _DeviceClock:
    """Time on a GPU, as events tell it."""

    def __init__(self) -> None:
        self.runtime = cuda_runtime()

    def now(self) -> Any:
        event = self.runtime.event()
        self.runtime.record(event)
        return event

    def seconds(self, start: Any, stop: Any) -> float:
        return self.runtime.seconds(start, stop)
