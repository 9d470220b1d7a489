"""Device time: seconds that a call takes on a device, with warm caches or with cold ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import tvm

from .cuda_events import cuda_runtime
from .sampling import Budget, sample, seconds_of

#: Written in front of a call that shall find its operands in no cache. On a GPU this also keeps the
#: device busy while the host enqueues the call, so that the host's part does not show.
FLUSH_BYTES = {"cuda": 1 << 30, "llvm": 1 << 26}
#: Too little to displace the operands from a cache, enough to cover a launch or two.
_WARM_BYTES = 1 << 22
#: Enough calls for a median, few enough that a thousand candidates take minutes. What takes longer
#: than the patience is no close call.
CANDIDATE = Budget(fewest=3, most=10, seconds=0.25, patience=1.0)

Call = Callable[[], Any]


def _nothing() -> None:
    """Where a call needs no preparation."""


def on_cpu(
    call: Call, prepare: Call = _nothing, cold: bool = False, budget: Budget = CANDIDATE
) -> list[float]:
    """Seconds of calls on this machine's CPU.

    The first call warms up and does not count, unless it takes longer than the budget's patience:
    then warming up does not show in it.

    Parameters
    ----------
    prepare : callable
        Called before each call, and not timed.
    """

    def measure() -> float:
        prepare()
        if cold:
            _cpu_flush().fill(1)
        return seconds_of(call)

    first = measure()
    return [first] if first > budget.patience else sample(measure, budget)


def on_gpu(
    call: Call,
    flush: Call,
    synchronize: Call,
    prepare: Call = _nothing,
    cold: bool = True,
    budget: Budget = CANDIDATE,
) -> list[float]:
    """Seconds of calls on this machine's GPU, from the first kernel's start to the last one's end.

    Taken by events on CUDA's default stream, the one TVM and PyTorch launch on.

    Parameters
    ----------
    flush : callable
        Enqueues what keeps the device busy in front of a call, and empties the caches if they shall
        be cold; see :func:`gpu_flush`.
    prepare : callable
        Called before each call, and not timed.
    """
    runtime = cuda_runtime()
    start, stop = runtime.event(), runtime.event()

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
    synchronize()
    return sample(measure, budget)


def behind_rpc(
    library: Any, function: str, arguments: list[Any], device: Any, prepare: Call, flush_bytes: int
) -> list[float]:
    """Seconds of calls on a device behind an RPC connection, by TVM's own evaluator.

    The evaluator makes one call that it does not count; a problem that is in place sees its data
    changed by it.

    Parameters
    ----------
    flush_bytes : int
        Written in front of each call; 0 leaves the caches as they are.
    """
    evaluator = library.time_evaluator(
        function, device, number=1, repeat=1, cache_flush_bytes=flush_bytes
    )

    def measure() -> float:
        prepare()
        return float(evaluator(*arguments).mean)

    return sample(measure, CANDIDATE)


@cache
def gpu_flush(device: Any, cold: bool) -> Call:
    """Moves memory on the default stream, and does not wait for it."""
    size = FLUSH_BYTES["cuda"] if cold else _WARM_BYTES
    source, target = (tvm.runtime.empty((size // 2,), "uint8", device) for _ in range(2))
    return lambda: source.copyto(target)


@cache
def _cpu_flush() -> Any:
    return np.empty(FLUSH_BYTES["llvm"], np.uint8)
