"""Packed logs, which are kept for fitting and judging."""

from __future__ import annotations

import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from tvm_scatter.errors import ScatterError

from .database import Database, read_database


def read_log(path: Path) -> Database:
    """A log to read: a directory of tuning records, or an archive that tar packed one in.

    Raises
    ------
    ScatterError
        If it holds no records, or those of another format.
    """
    if not path.is_file():
        return read_database(path)
    with TemporaryDirectory(prefix="tvm_scatter") as folder:
        try:
            with tarfile.open(path) as archive:
                archive.extractall(folder, filter="data")
        except (tarfile.TarError, EOFError, OSError) as error:
            raise ScatterError(f"tuning: {str(path)!r} is no archive of a log: {error}.") from error
        logs = [found.parent for found in Path(folder).rglob("metadata.json")]
        if len(logs) != 1:
            raise ScatterError(f"tuning: {str(path)!r} must hold one log and holds {len(logs)}.")
        return read_database(logs[0])
