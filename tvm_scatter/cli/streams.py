"""Handles standard streams that are closed or full, and terminals without a width."""

from __future__ import annotations

import errno
import io
import os
import sys

_UNWRITABLE = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def prepare() -> None:
    """Make the standard streams safe to write to."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, _nowhere(number))
    if isinstance(sys.stdout, io.TextIOWrapper):
        # File names may be undecodable.
        sys.stdout.reconfigure(errors="backslashreplace")
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) == 0:
        # Some shells set COLUMNS to 0 without a terminal, and tables would be empty.
        del os.environ["COLUMNS"]


def is_unwritable(error: OSError) -> bool:
    """Whether an error means that output cannot be written."""
    return error.filename is None and error.errno in _UNWRITABLE


def drop() -> None:
    """Discard buffered output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _nowhere(number: int) -> io.TextIOWrapper:
    """A replacement for a closed stream. It opens the descriptor, too, for code in C."""
    try:
        os.fstat(number)
    except OSError:
        sink = os.open(os.devnull, os.O_WRONLY)
        if sink != number:
            os.dup2(sink, number)
            os.close(sink)
        return open(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    return open(os.devnull, "w", encoding="utf-8")
