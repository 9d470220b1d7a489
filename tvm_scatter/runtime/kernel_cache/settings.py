"""Where compiled kernels are kept, how many bytes of them, and whether at all."""

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
#: Of a size that any disk may have.
_MOST_DIGITS = 18
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def is_on() -> bool:
    """Whether kernels are looked up and kept at all."""
    return os.environ.get(SWITCH) != "0"


def folder() -> Path:
    """The folder that is ours alone: below ``$TVM_SCATTER_CACHE_DIR``, else the user's cache.

    Raises
    ------
    ScatterError
        If the variable names no folder.
    """
    return _base() / "kernels"


def headers_folder() -> Path:
    """Where digests of CUDA's headers are kept, beside the kernels."""
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
    """How many bytes may be kept: ``$TVM_SCATTER_CACHE_SIZE``, else 1 GiB.

    Raises
    ------
    ScatterError
        If the variable holds no size.
    """
    text = os.environ.get(SIZE, "").strip()
    if not text:
        return _DEFAULT_SIZE
    match = re.fullmatch(rf"(\d{{1,{_MOST_DIGITS}}})([KMG]?)", text.upper(), re.ASCII)
    if match is None:
        shown = text if len(text) <= 40 else f"{text[:37]}..."
        raise ScatterError(f"{SIZE}={shown!r} must be a number of bytes, such as 500M or 2G.")
    return int(match[1]) * _UNITS[match[2]]
