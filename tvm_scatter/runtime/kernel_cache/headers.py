"""A digest of the headers that a source includes, wherever they are installed."""

from __future__ import annotations

import hashlib
import json
import os
import re
from functools import cache
from pathlib import Path

from . import settings
from .store import Store

_INCLUDE = re.compile(r'#[ \t]*include(?:_next)?[ \t]*[<"]([^>"\n]+)[>"]')
#: Bytes of digests to keep; each has some 40 KB.
_KEPT_BYTES = 8 << 20


def included(text: str) -> frozenset[str]:
    """The names in the include directives of a text, whether their conditions hold or not."""
    return frozenset(_INCLUDE.findall(text))


@cache
def headers_digest(names: frozenset[str], folders: tuple[Path, ...]) -> str:
    """A digest of headers and of all that they include, searched for as compilers do.

    It depends on the texts only, not on their paths. A header in none of the folders is built into
    the compiler, and counts with its version.

    Every build needs this digest, even if all kernels are cached. So the digest is cached, too, and
    is valid as long as no file or folder that was read has changed.
    """
    places = tuple(map(str, folders))
    store = Store(settings.headers_folder(), _KEPT_BYTES)
    key = hashlib.sha256(json.dumps([sorted(names), places]).encode()).hexdigest()
    kept = store.read(key)
    if kept is not None:
        digest, looked_at = json.loads(kept)
        if all(_state(path) == state for path, state in looked_at.items()):
            return str(digest)
    look = _Look()
    digest = look.digest(names, places)
    store.write(key, json.dumps([digest, look.states]).encode())
    return digest


def _state(path: str) -> list[int]:
    """Numbers that change when a file, or the list of files in a folder, changes."""
    try:
        status = os.stat(path)
    except OSError:
        return []
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


class _Look:
    """Reads headers for one digest, and records the state of every file and folder read."""

    def __init__(self) -> None:
        self.states: dict[str, list[int]] = {}
        self._listed: dict[str, frozenset[str]] = {}

    def digest(self, names: frozenset[str], places: tuple[str, ...]) -> str:
        texts: dict[str, str] = {}
        waiting = [(name, "") for name in names]
        seen = set(waiting)
        while waiting:
            name, includer = waiting.pop()
            found = self._find(name, (includer, *places) if includer else places)
            if found is None or found in texts:
                continue
            texts[found], inner = self._read(found)
            more = {(name, os.path.dirname(found)) for name in inner} - seen
            seen |= more
            waiting += more
        return hashlib.sha256("\n".join(sorted(texts.values())).encode()).hexdigest()

    def _find(self, name: str, folders: tuple[str, ...]) -> str | None:
        # Each folder is listed once, which is cheaper than to test for thousands of files.
        for folder in folders:
            path = os.path.join(folder, name)
            inside, _, last = path.rpartition(os.sep)
            if inside not in self._listed:
                self._listed[inside] = self._list(inside)
            if last in self._listed[inside]:
                return path
        return None

    def _list(self, folder: str) -> frozenset[str]:
        self.states[folder] = _state(folder)
        try:
            with os.scandir(folder) as entries:
                return frozenset(entry.name for entry in entries if entry.is_file())
        except OSError:
            return frozenset()

    def _read(self, path: str) -> tuple[str, frozenset[str]]:
        # The state is taken before reading, so that a change in between is noticed.
        self.states[path] = _state(path)
        try:
            content = Path(path).read_bytes()
        except OSError:
            return "unreadable", frozenset()
        return hashlib.blake2b(content).hexdigest(), included(content.decode(errors="replace"))
