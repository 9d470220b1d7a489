"""Ctrl-C while the command is still being imported, which takes seconds, and afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from types import FrameType, TracebackType

#: What a shell takes for the end of a command that was interrupted.
STATUS = 130
_COMMAND, _MODULE = "tvm-scatter", "tvm_scatter.cli"
_WORKER = "--multiprocessing-fork"


def expect() -> None:
    """End the command with a sentence instead of a traceback; do nothing in other programs.

    An exception would not do while the package is being imported: NumPy's C code turns it into
    errors of its own, and prints some.
    """
    if _WORKER in sys.orig_argv:
        return
    name = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    if name != _COMMAND and _MODULE not in sys.orig_argv[:3]:
        return
    sys.excepthook = _hook
    # Who ignores the signal, such as nohup, goes on ignoring it.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGINT, _end)


def imported() -> None:
    """From now on an interrupt is an exception, as everywhere in Python."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def caused(error: BaseException | None) -> bool:
    """Whether an error comes from an interrupt, if not at first hand."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.append(error)
        error = error.__cause__ or error.__context__
    return False


def say(command: str) -> None:
    """Tell the user."""
    with contextlib.suppress(OSError):
        os.write(2, f"{command}: interrupted.\n".encode())


def _end(_signal: int, _frame: FrameType | None) -> None:
    say(_COMMAND)
    os._exit(STATUS)


def _hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if not caused(error):
        sys.__excepthook__(kind, error, traceback)
        return
    say(_COMMAND)
    raise SystemExit(STATUS)
