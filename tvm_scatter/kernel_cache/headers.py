"""A digest of the headers that a source includes, wherever they are installed."""

from __future__ import annotations

import hashlib
import os
import re
from functools import cache
from pathlib import Path

_INCLUDE = re.compile(r'#[ \t]*include(?:_next)?[ \t]*[<"]([^>"\n]+)[>"]')


def included(text: str) -> frozenset[str]:
    """The names in the include directives of a text, those under a false condition too."""
    return frozenset(_INCLUDE.findall(text))


@cache
def headers_digest(names: frozenset[str], folders: tuple[Path, ...]) -> str:
    """A digest of the named headers and of all that they include, found as a compiler finds them.

    Only texts count, not where they stand. What is in no folder is the compiler's own, and belongs
    to its version.
    """
    places = tuple(map(str, folders))
    texts: dict[str, str] = {}
    waiting = [(name, "") for name in names]
    seen = set(waiting)
    while waiting:
        name, includer = waiting.pop()
        found = _find(name, (includer, *places) if includer else places)
        if found is None or found in texts:
            continue
        texts[found], inner = _read(found)
        more = {(name, os.path.dirname(found)) for name in inner} - seen
        seen |= more
        waiting += more
    return hashlib.sha256("\n".join(sorted(texts.values())).encode()).hexdigest()


def _find(name: str, folders: tuple[str, ...]) -> str | None:
    # A build with everything in the cache waits for this: folders are listed once, paths are text.
    for folder in folders:
        path = os.path.join(folder, name)
        inside, _, last = path.rpartition(os.sep)
        if last in _files(inside):
            return path
    return None


@cache
def _files(folder: str) -> frozenset[str]:
    try:
        with os.scandir(folder) as entries:
            return frozenset(entry.name for entry in entries if entry.is_file())
    except OSError:
        return frozenset()


@cache
def _read(path: str) -> tuple[str, frozenset[str]]:
    try:
        content = Path(path).read_bytes()
    except OSError:
        return "unreadable", frozenset()
    return hashlib.blake2b(content).hexdigest(), included(content.decode(errors="replace"))
