"""Settings of the kernel cache from the environment: on or off, folder, size."""

from __future__ import annotations

import os
import re
from pathlib import Path

import platformdirs

from tvm_scatter.errors import ScatterError

SWITCH = "TVM_SCATTER_CACHE"
FOLDER = "TVM_SCATTER_CACHE_DIR"
SIZE = "TVM_SCATTER_CACHE_SIZE"

_DEFAULT_SIZE = 1 << 30
#: The largest number of digits of a size.
_MOST_DIGITS = 18
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def is_on() -> bool:
    """Whether the cache is switched on."""
    return os.environ.get(SWITCH) != "0"


def folder() -> Path:
    """The folder of this package: in ``$TVM_SCATTER_CACHE_DIR``, else in the user's cache folder.

    Raises
    ------
    ScatterError
        If the variable does not name a folder.
    """
    return _base() / "kernels"


def headers_folder() -> Path:
    """The folder for digests of CUDA's headers, beside that of the kernels."""
    return _base() / "headers"


def _base() -> Path:
    chosen = os.environ.get(FOLDER)
    if not chosen:
        return platformdirs.user_cache_path("tvm_scatter").absolute()
    try:
        return Path(chosen).expanduser().absolute()
    except (RuntimeError, OSError) as error:
        raise ScatterError(f"{FOLDER}={chosen!r} must be a folder: {error}.") from error


def size_limit() -> int:
    """The largest size of the cache in bytes: ``$TVM_SCATTER_CACHE_SIZE``, else 1 GiB.

    Raises
    ------
    ScatterError
        If the variable does not hold a size.
    """
    text = os.environ.get(SIZE, "").strip()
    if not text:
        return _DEFAULT_SIZE
    match = re.fullmatch(rf"(\d{{1,{_MOST_DIGITS}}})([KMG]?)", text.upper(), re.ASCII)
    if match is None:
        shown = text if len(text) <= 40 else f"{text[:37]}..."
        raise ScatterError(f"{SIZE}={shown!r} must be a number of bytes, such as 500M or 2G.")
    return int(match[1]) * _UNITS[match[2]]
