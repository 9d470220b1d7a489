"""Processes that do what may hang, crash or corrupt memory, one call at a time."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

_START_SECONDS = 120.0


class WorkerError(Exception):
    """A call did not come back with a result; the text says why."""


class WorkerDied(WorkerError):
    """The process ended or was killed. The next call gets a new one."""


class Worker:
    """A process of its own for calls that must not take this one down.

    Parameters
    ----------
    imports : sequence of str
        Modules that the process imports first, such as one that adds implementations.
    """

    def __init__(self, imports: Sequence[str] = ()) -> None:
        self._imports = tuple(imports)
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None

    def call(self, function: Callable[..., Any], *args: Any, timeout: float) -> Any:
        """Call a function that a module defines, in the process.

        Parameters
        ----------
        timeout : float
            Seconds after which the process is killed.

        Raises
        ------
        WorkerDied
            If the call took too long or the process ended.
        WorkerError
            If the function raised.
        """
        try:
            if self._process is None:
                self._start()
            assert self._connection is not None
            self._connection.send((function, args))
            if not self._connection.poll(timeout):
                self.stop()
                raise WorkerDied(f"it took more than {timeout:g} s")
            succeeded, value = self._connection.recv()
        except (EOFError, OSError) as error:
            raise WorkerDied(f"its process ended: {self._ending()}") from error
        if succeeded:
            return value
        raise WorkerError(value)

    def stop(self) -> None:
        """End the process and what it has started."""
        if self._process is None:
            return
        assert self._connection is not None
        self._connection.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def _start(self) -> None:
        self._connection, theirs = Pipe()
        # What can be imported here can be imported there.
        path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        command = [
            sys.executable,
            "-m",
            "tvm_scatter.tuning.measure.worker_main",
            str(theirs.fileno()),
        ]
        self._process = subprocess.Popen(
            [*command, *self._imports],
            pass_fds=[theirs.fileno()],
            # Candidates are compiled once; in the kernel cache they would push out what is used.
            env={**os.environ, "PYTHONPATH": path, "TVM_SCATTER_CACHE": "0"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        # Loading TVM takes seconds, which are not the first call's.
        if not self._connection.poll(_START_SECONDS):
            self.stop()
            raise WorkerDied(f"its process did not start within {_START_SECONDS:g} s")
        self._connection.recv()

    def _ending(self) -> str:
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        code = self._process.returncode
        self.stop()
        if code is None or code >= 0:
            return f"exit status {code}"
        return signal.Signals(-code).name


class Workers:
    """A fixed number of workers, lent one by one.

    Parameters
    ----------
    count : int
        How many processes at most; they are started when first needed.
    """

    def __init__(self, count: int, imports: Sequence[str] = ()) -> None:
        self._all = [Worker(imports) for _ in range(count)]
        self._free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self._all:
            self._free.put(worker)

    def __len__(self) -> int:
        return len(self._all)

    @contextlib.contextmanager
    def lent(self) -> Iterator[Worker]:
        """A worker for the length of the block; waits until one is free."""
        worker = self._free.get()
        try:
            yield worker
        finally:
            self._free.put(worker)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._all:
            worker.stop()
