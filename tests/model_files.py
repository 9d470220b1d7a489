"""Model files as PyTorch writes them, and with something else put in."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

#: Makes of an entry's content another.
Change = Callable[[bytes], bytes]


def changed(good: Path, bad: Path, changes: Mapping[str, Change], **added: bytes) -> Path:
    """A copy of a model file with other entries: their names are those inside of its folder."""
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(bad, "w") as target:
        folder = source.namelist()[0].partition("/")[0]
        for name in source.namelist():
            change = changes.get(name.removeprefix(f"{folder}/"), bytes)
            target.writestr(name, change(source.read(name)))
        for name, content in added.items():
            target.writestr(f"{folder}/{name}", content)
    return bad
