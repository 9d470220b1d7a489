"""What the benchmarks of scatters and of models do with their arguments."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import tvm

from tvm_scatter.errors import ScatterError


def device_of(arguments: argparse.Namespace) -> str:
    """PyTorch's name of the device to measure on.

    Raises
    ------
    ScatterError
        If it is not there.
    """
    device = arguments.device or ("cuda" if tvm.cuda(0).exist else "cpu")
    if device == "cuda" and not tvm.cuda(0).exist:
        raise ScatterError("bench: there is no CUDA device here; use --device cpu.")
    return str(device)


def check(scale: int, arguments: argparse.Namespace) -> None:
    """Raise, before anything is measured, if the scale or a file for results cannot be.

    Raises
    ------
    ScatterError
        If so.
    """
    if scale < 1:
        raise ScatterError(f"bench: --scale {scale} must be at least 1, which is all of the work.")
    for file in filter(None, (arguments.json, arguments.markdown, arguments.plot)):
        _need_writable(Path(file))


def to_resume(arguments: argparse.Namespace) -> Path | None:
    """The file of an earlier run's report, if ``--resume`` is given and it exists.

    Raises
    ------
    ScatterError
        If no file is named.
    """
    if not arguments.resume:
        return None
    if not arguments.json:
        raise ScatterError("bench: --resume needs --json FILE, the report to go on with.")
    path = Path(arguments.json)
    return path if path.exists() else None


def _need_writable(path: Path) -> None:
    """Raise, before anything is measured, if a file for results cannot be written."""
    if not path.parent.is_dir():
        raise ScatterError(f"bench: {path}: there is no folder {path.parent}.")
    if path.is_dir():
        raise ScatterError(f"bench: {path} is a folder; name the file to write.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ScatterError(f"bench: {path} cannot be written: permission denied.")
