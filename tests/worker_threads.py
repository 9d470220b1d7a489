"""Several worker threads for CPU code, whatever the machine has: in one alone no race shows."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

THREADS = 4


def enable() -> None:
    """Have TVM run CPU code in :data:`THREADS` threads. To be called before TVM runs any."""
    os.environ["TVM_NUM_THREADS"] = str(THREADS)
    # TVM would bind its main thread to the first core, and that of every test process to the same.
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    # Threads that wait would take the cores from those that work.
    os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "0")
    import tvm

    tvm.get_global_func("runtime.config_threadpool")(1, THREADS)
    assert count() >= THREADS, f"CPU code runs in {count()} threads"


def count() -> int:
    """The threads that CPU code runs in when it is called from this one."""
    import tvm

    return int(tvm.get_global_func("runtime.NumThreads")())


@contextlib.contextmanager
def running_in(threads: int) -> Iterator[None]:
    """CPU code runs in so many threads inside the block, :data:`THREADS` at most."""
    import tvm

    configure = tvm.get_global_func("runtime.config_threadpool")
    configure(1, threads)
    try:
        assert count() == threads, f"CPU code runs in {count()} threads"
        yield
    finally:
        configure(1, THREADS)


@contextlib.contextmanager
def divided_work() -> Iterator[None]:
    """What is compiled inside the block divides even the smallest work among all threads."""
    from tvm_scatter.strategies.llvm.steps import loops

    before = loops.SERIAL_WORK
    loops.SERIAL_WORK = -1
    try:
        yield
    finally:
        loops.SERIAL_WORK = before
