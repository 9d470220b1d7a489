"""Compiled kernels on disk, shared by any number of processes.

An entry is one file, named by its key. It holds a digest of its content, and is published by a
rename. If anything is wrong with the disk, kernels are compiled as without a cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import filelock

_MAGIC = b"tvm_scatter kernel 1\n"
#: Lock files are never deleted, so there is a fixed number of them.
_LOCK_DIGITS = 2
_LOCK_PATIENCE = 300.0
#: Eviction leaves some room, so that not every write evicts.
_FULL = 0.9
_ABANDONED_AFTER = 3600.0
_TEMPORARY = "writing-"
#: Names of entries. Files with other names are not touched.
_KEY = re.compile(r"[0-9a-f]{64}")
#: The largest entry in bytes, far beyond any kernel. Larger files are not read.
_LARGEST = 1 << 30

_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFDIR: "a folder",
    stat.S_IFREG: "no folder",
}

_logger = logging.getLogger("tvm_scatter")


class Entry(NamedTuple):
    """A file of the store: its path, its size in bytes, and the time of its last use."""

    path: Path
    size: int
    used: float


class Store:
    """Entries by key, in a folder that other users can neither write to nor replace.

    Keys are SHA-256 digests in hexadecimal.

    Parameters
    ----------
    folder : Path
        Created if it does not exist. It must belong to the user, and other users must not be able
        to rename the folders above it.
    limit : int
        The largest total size in bytes. Beyond it, the least recently used entries are deleted.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder = folder
        self.limit = limit

    def read(self, key: str) -> bytes | None:
        """The binary stored under a key; ``None`` if there is none, or if it is damaged."""
        path = self._path(key)
        try:
            self._check_private()
            _need_own_folder(path.parent)
            content = _read_own(path, self._largest())
        except FileNotFoundError:
            return None
        except OSError as error:
            _say_once(f"{path}: not used: {error}")
            return None
        binary = _unpack(key, content)
        if binary is not None:
            with contextlib.suppress(OSError):
                os.utime(path)
        return binary

    def write(self, key: str, binary: bytes) -> None:
        """Store a binary. If the disk does not allow it, do nothing."""
        content = _pack(key, binary)
        if len(content) > self._largest():
            return
        try:
            self._prepare()
            path = self._path(key)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            _need_own_folder(path.parent)
            _publish(path, content)
        except OSError as error:
            _say_once(f"{self.folder}: compiled kernels are not kept: {error}")
            return
        self._evict()

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Lock a key against other processes, if the file system supports locks.

        The operating system frees the lock of a process that dies.
        """
        with contextlib.ExitStack() as held:
            try:
                self._prepare()
                path = self.folder / f"{key[:_LOCK_DIGITS]}.lock"
                if os.path.lexists(path):
                    _need_own(path.lstat(), stat.S_ISREG)
                lock = filelock.FileLock(path, timeout=_LOCK_PATIENCE, mode=0o600)
                held.enter_context(lock)
            except (OSError, NotImplementedError, filelock.Timeout) as error:
                _say_once(f"{self.folder}: no lock: {error}")
            yield

    def trouble(self) -> str:
        """Why nothing can be stored; empty if the folder exists or could be created."""
        try:
            self._prepare()
        except OSError as error:
            return str(error)
        return ""

    def entries(self) -> list[Entry]:
        """All entries, the least recently used first."""
        found = [_entry(path) for path in self._files("*") if _is_entry(path)]
        return sorted(filter(None, found), key=lambda entry: entry.used)

    def clear(self) -> list[Entry]:
        """Delete all entries, and return them."""
        return [entry for entry in self.entries() if _delete(entry.path)]

    def _largest(self) -> int:
        return min(self.limit, _LARGEST)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key

    def _prepare(self) -> None:
        for folder in reversed((self.folder, *self.folder.parents)):
            if not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=True)
        self._check_private()

    def _check_private(self) -> None:
        """Raise if other users may write to the folder, whose content is run as code.

        A file that another user could write there earlier belongs to that user. Such files are
        refused one by one.
        """
        _need_own_folder(self.folder)
        _need_lasting(self.folder.parent)
        if hasattr(os, "geteuid") and stat.S_IMODE(self.folder.stat().st_mode) & 0o077:
            self.folder.chmod(0o700)

    def _files(self, name: str) -> list[Path]:
        """The files of a name in sub-folders that belong to the user; links are not followed."""
        try:
            self._check_private()
            folders = [path for path in self.folder.glob("??") if _is_own_folder(path)]
        except FileNotFoundError:
            return []
        except OSError as error:
            _say_once(f"{self.folder}: left alone: {error}")
            return []
        return [path for folder in folders for path in folder.glob(name)]

    def _evict(self) -> None:
        entries = self.entries()
        excess = sum(entry.size for entry in entries) - self.limit
        if excess > 0:
            excess += int(self.limit * (1 - _FULL))
            for entry in entries:
                if excess <= 0:
                    break
                _delete(entry.path)
                excess -= entry.size
        for path in self._files(f"{_TEMPORARY}*"):
            left = _entry(path)
            if left is not None and left.used < time.time() - _ABANDONED_AFTER:
                _delete(path)


def _pack(key: str, binary: bytes) -> bytes:
    return _MAGIC + _digest(key, binary) + b"\n" + binary


def _unpack(key: str, content: bytes) -> bytes | None:
    magic, digest, binary = content[: len(_MAGIC)], *content[len(_MAGIC) :].partition(b"\n")[::2]
    return binary if (magic, digest) == (_MAGIC, _digest(key, binary)) else None


def _digest(key: str, binary: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\n" + binary).hexdigest().encode()


def _publish(path: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=_TEMPORARY)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except BaseException:
        _delete(Path(name))
        raise


def _need_own(status: os.stat_result, is_kind: Callable[[int], bool]) -> None:
    """Raise if a file belongs to another user, or is of another kind, such as a link."""
    if not is_kind(status.st_mode):
        raise PermissionError(f"it is {_KINDS.get(stat.S_IFMT(status.st_mode), 'no file')}")
    if not hasattr(os, "geteuid"):
        return
    if status.st_uid != os.geteuid():
        raise PermissionError(f"it belongs to user {status.st_uid}")


def _need_own_folder(path: Path) -> None:
    _need_own(path.lstat(), stat.S_ISDIR)


def _need_lasting(path: Path) -> None:
    """Raise if another user could replace the folder, or one above it, by a folder or a link."""
    if not hasattr(os, "geteuid"):
        return
    for place in (path, *path.parents):
        status = place.lstat()
        if status.st_uid not in (0, os.geteuid()):
            raise PermissionError(f"{place} above it belongs to user {status.st_uid}")
        if stat.S_ISLNK(status.st_mode):
            _need_lasting(place.parent / os.readlink(place))
        elif status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
            raise PermissionError(
                f"others may write to {place} above it; run chmod go-w on that folder, or choose "
                "another place for the cache"
            )


def _is_own_folder(path: Path) -> bool:
    try:
        _need_own_folder(path)
    except OSError:
        return False
    return True


def _read_own(path: Path, largest: int) -> bytes:
    """The content of a file, not following links and not waiting for pipes."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with os.fdopen(os.open(path, flags | getattr(os, "O_BINARY", 0)), "rb") as file:
        status = os.fstat(file.fileno())
        _need_own(status, stat.S_ISREG)
        if hasattr(os, "geteuid") and stat.S_IMODE(status.st_mode) & 0o022:
            raise PermissionError("others may write to it")
        if status.st_size > largest:
            raise OSError(f"it has {status.st_size} bytes, of which at most {largest} are read")
        return file.read(largest)


def _is_entry(path: Path) -> bool:
    """Whether a path has the form of an entry's."""
    return bool(_KEY.fullmatch(path.name)) and path.parent.name == path.name[:2]


def _entry(path: Path) -> Entry | None:
    try:
        status = path.lstat()
    except OSError:  # another process has deleted it already
        return None
    return Entry(path, status.st_size, status.st_mtime)


def _delete(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


_said: set[str] = set()


def _say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        _logger.warning(text)
