"""``tvm-scatter cache``: shows and deletes the compiled kernels in the cache."""

from __future__ import annotations

import argparse

from tvm_scatter.errors import ScatterError
from tvm_scatter.runtime.kernel_cache import Store, settings


def run(arguments: argparse.Namespace) -> int:
    """Print the contents of the cache, or delete them."""
    store = Store(settings.folder(), settings.size_limit())
    if arguments.action == "clear":
        deleted = store.clear()
        Store(settings.headers_folder(), 0).clear()
        print(f"{store.folder}: deleted {_text(len(deleted), sum(e.size for e in deleted))}")
        return 0
    trouble = store.trouble()
    if trouble:
        raise ScatterError(f"{store.folder}: no kernels can be kept there: {trouble}.")
    entries = store.entries()
    kept = _text(len(entries), sum(entry.size for entry in entries))
    state = "" if settings.is_on() else f"; switched off by {settings.SWITCH}=0"
    print(f"{store.folder}: {kept} of at most {_mebibytes(store.limit)}{state}")
    return 0


def _text(count: int, size: int) -> str:
    return f"{count} kernel module{'' if count == 1 else 's'}, {_mebibytes(size)}"


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
