"""Handles Ctrl-C, also during the seconds in which the command is still being imported."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from types import FrameType, TracebackType

#: The exit status by which a shell knows that a command was interrupted.
STATUS = 130
_COMMAND, _MODULE = "tvm-scatter", "tvm_scatter.cli"
_WORKER = "--multiprocessing-fork"


def expect() -> None:
    """Let Ctrl-C end this command with a sentence, not a traceback. No effect in other programs.

    An exception does not work during imports: NumPy's C code turns it into other errors, and prints
    some.
    """
    if _WORKER in sys.orig_argv:
        return
    name = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    if name != _COMMAND and _MODULE not in sys.orig_argv[:3]:
        return
    sys.excepthook = _hook
    # A process that ignores the signal, as under nohup, goes on ignoring it.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGINT, _end)


def imported() -> None:
    """After the imports: from now on an interrupt raises ``KeyboardInterrupt`` again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def caused(error: BaseException | None) -> bool:
    """Whether an error is an interrupt, or was caused by one."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.append(error)
        error = error.__cause__ or error.__context__
    return False


def say(command: str) -> None:
    """Tell the user that the command was interrupted."""
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
