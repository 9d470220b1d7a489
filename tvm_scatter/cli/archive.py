"""Copies the checked entries of a zip archive to a new one, which PyTorch then reads.

PyTorch has its own zip reader, and two readers may see two different archives in one file. So the
allowed entries are copied to a new, unnamed file.
"""

from __future__ import annotations

import re
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO

#: Rewrites the content of an entry; ``None`` copies it unchanged.
Rewrite = Callable[[bytes], bytes] | None
Allowed = Mapping[re.Pattern[str], Rewrite]

_ENCRYPTED = 0x1
#: The folder of all entries in the copy, if the original has one folder for all.
_FOLDER = "model/"


class RefusedError(Exception):
    """A file is refused; the text is the predicate of a sentence that says why."""

    def __init__(
        self,
        text: str,
        right: str = "it must hold a program and tensors only, as torch.export.save writes them",
    ) -> None:
        super().__init__(text)
        self.right = right


@contextmanager
def clean_copy(file: IO[bytes], allowed: Allowed) -> Iterator[IO[bytes]]:
    """A copy of an archive that holds only what is allowed.

    Parameters
    ----------
    file : file
        The archive. Changes to it during the copy do not reach the copy unchecked.
    allowed : mapping of pattern to function or None
        The allowed names of entries, without the folder that holds them all, and how to rewrite the
        content of each.

    Raises
    ------
    RefusedError
        If the file is no archive, or an entry has another name, is not stored as PyTorch stores it,
        is damaged, or cannot be rewritten.
    """
    with tempfile.TemporaryFile() as copy:
        _copy(file, copy, allowed)
        copy.seek(0)
        yield copy


def _copy(file: IO[bytes], copy: IO[bytes], allowed: Allowed) -> None:
    try:
        with zipfile.ZipFile(file) as source, zipfile.ZipFile(copy, "w") as target:
            _check(source.infolist(), file.seek(0, 2))
            for entry, name, folder in _named(source.infolist()):
                rewrite = _rewrite_of(name, allowed)
                written = zipfile.ZipInfo(folder + name)
                if rewrite is not None:
                    target.writestr(written, rewrite(source.read(entry)))
                    continue
                written.file_size = entry.file_size
                with source.open(entry) as old, target.open(written, "w") as new:
                    shutil.copyfileobj(old, new, 1 << 20)
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise RefusedError(f"is a damaged archive ({error})") from error


def _check(entries: Sequence[zipfile.ZipInfo], size: int) -> None:
    """Raise for traits of an archive that only a harmful one has."""
    seen: set[str] = set()
    for entry in entries:
        # PyTorch looks up names of entries without regard to case.
        folded = entry.filename.casefold()
        if folded in seen:
            raise RefusedError(f"holds {entry.filename!r} twice")
        seen.add(folded)
        if entry.flag_bits & _ENCRYPTED:
            raise RefusedError(f"holds {entry.filename!r}, which is encrypted")
        if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
            raise RefusedError(f"holds {entry.filename!r} compressed, which PyTorch does not write")
        if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
            raise RefusedError(f"holds {entry.filename!r}, which is no file")
    if sum(entry.file_size for entry in entries) > size:
        raise RefusedError("holds entries that overlap")


def _named(entries: Sequence[zipfile.ZipInfo]) -> Iterator[tuple[zipfile.ZipInfo, str, str]]:
    """For each entry, its name within the common folder, and that folder's name in the copy."""
    folders = {entry.filename.partition("/")[0] for entry in entries}
    inside = len(folders) == 1 and all("/" in entry.filename for entry in entries)
    for entry in entries:
        name = entry.filename.partition("/")[2] if inside else entry.filename
        yield entry, name, _FOLDER if inside else ""


def _rewrite_of(name: str, allowed: Allowed) -> Rewrite:
    for pattern, rewrite in allowed.items():
        if pattern.fullmatch(name):
            return rewrite
    raise RefusedError(f"holds {name!r}")
