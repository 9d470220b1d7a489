"""A digest of the headers that a source includes, wherever they are installed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
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
    texts: dict[Path, str] = {}
    waiting: list[tuple[str, Path | None]] = [(name, None) for name in names]
    while waiting:
        name, includer = waiting.pop()
        found = _find(name, includer, folders)
        if found is None or found in texts:
            continue
        digest, inner = _read(found)
        texts[found] = digest
        waiting += [(name, found.parent) for name in inner]
    return hashlib.sha256("\n".join(sorted(texts.values())).encode()).hexdigest()


def _find(name: str, includer: Path | None, folders: Iterable[Path]) -> Path | None:
    places: Sequence[Path] = [*([] if includer is None else [includer]), *folders]
    return next((place / name for place in places if (place / name).is_file()), None)


@cache
def _read(path: Path) -> tuple[str, frozenset[str]]:
    try:
        content = path.read_bytes()
    except OSError:
        return "unreadable", frozenset()
    return hashlib.sha256(content).hexdigest(), included(content.decode(errors="replace"))
