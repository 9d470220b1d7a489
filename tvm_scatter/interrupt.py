"""Ctrl-C while the command is still being imported, which takes seconds."""

from __future__ import annotations

import sys
from pathlib import PurePath
from types import TracebackType

#: What a shell takes for the end of a command that was interrupted.
STATUS = 130
_COMMAND, _MODULE = "tvm-scatter", "tvm_scatter.cli"


def expect() -> None:
    """End the command with a sentence instead of a traceback; do nothing in other programs."""
    if PurePath(sys.argv[0]).stem == _COMMAND or _MODULE in sys.orig_argv[:3]:
        sys.excepthook = _hook


def _hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)
        return
    say(_COMMAND)
    raise SystemExit(STATUS)


def say(command: str) -> None:
    """Tell the user."""
    sys.stderr.write(f"{command}: interrupted.\n")
