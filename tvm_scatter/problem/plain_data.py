"""JSON that somebody else wrote: whatever is wrong with it is a ``ValueError``."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

#: More than any file of records; beyond, reading it would take the machine's memory.
_MOST_BYTES = 4 << 30


def parse(text: str) -> Any:
    """The data behind a JSON text.

    Raises
    ------
    ValueError
        If it is no JSON, or nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_text(path: Path) -> str:
    """The text of a file; what is no UTF-8 in it is replaced.

    Raises
    ------
    OSError
        If it cannot be read.
    ValueError
        If it is no file, such as a pipe that nobody writes to, or larger than any file of records.
    """
    # A pipe would keep the reader waiting already when it is opened.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no file")
        if status.st_size > _MOST_BYTES:
            raise ValueError(f"it is {status.st_size >> 30} GiB large")
        return file.read().decode("utf-8", errors="replace")
