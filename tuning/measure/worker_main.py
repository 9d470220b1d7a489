"""The main program of a :class:`~tvm_scatter.tuning.measure.workers.Worker` process."""

from __future__ import annotations

import ctypes
import importlib
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

_PR_SET_PDEATHSIG = 1


def main(descriptor: int, imports: list[str]) -> None:
    """Say that all is loaded, then answer calls until the other side is gone."""
    if sys.platform == "linux":
        # A call that hangs must not outlive the process that waits for it.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    connection: Connection[Any, Any] = Connection(descriptor)
    for module in imports:
        importlib.import_module(module)
    connection.send("ready")
    while True:
        try:
            function, args = connection.recv()
        except EOFError:
            return
        try:
            answer = (True, function(*args))
        except Exception as error:  # every failure of a call is the caller's to judge
            answer = (False, describe(error))
        connection.send(answer)


def describe(error: BaseException) -> str:
    """What an error says, in one line, the last one of a compiler's many."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    wanted = [line for line in lines if "error" in line.lower()] or lines[-1:]
    return (wanted[0] if wanted else type(error).__name__)[:300]


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
