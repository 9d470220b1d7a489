"""Reads JSON from untrusted files: any defect raises ``ValueError``."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

#: The largest size of a file in bytes, larger than any file of records.
_MOST_BYTES = 4 << 30


def parse(text: str) -> Any:
    """The data behind a JSON text.

    Raises
    ------
    ValueError
        If it is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_text(path: Path) -> str:
    """The text of a file; bytes that are not UTF-8 are replaced.

    Raises
    ------
    OSError
        If it cannot be read.
    ValueError
        If it is not a regular file (but, say, a pipe), or larger than any file of records.
    """
    # Opening a pipe would block, so the kind of file is checked before.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no file")
        if status.st_size > _MOST_BYTES:
            raise ValueError(f"it is {status.st_size >> 30} GiB large")
        return file.read().decode("utf-8", errors="replace")
