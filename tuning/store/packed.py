"""Packed logs: those that are shipped, and those that are kept for fitting and judging."""

from __future__ import annotations

import lzma
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from tvm_scatter.errors import ScatterError
from tvm_scatter.selection.shipped_log import METADATA, RECORDS, WORKLOADS

from .database import Database, read_database

#: Lines of a log repeat each other from end to end: all of it is looked at for repetitions.
_FILTERS = (
    {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 25},
)  # fmt: skip


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
        logs = [found.parent for found in Path(folder).rglob(METADATA)]
        if len(logs) != 1:
            raise ScatterError(f"tuning: {str(path)!r} must hold one log and holds {len(logs)}.")
        return read_database(logs[0])


def pack_log(folder: Path, path: Path, name: str) -> None:
    """Pack a directory of tuning records as ``name``; equal ones give equal archives.

    The metadata come first, so that a reader learns what the log is for without reading it all.
    """
    with (
        lzma.open(path, "wb", filters=_FILTERS) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for part in (METADATA, WORKLOADS, RECORDS):
            archive.add(folder / part, f"{name}/{part}", filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    return member
