"""Runs Python with AddressSanitizer and UndefinedBehaviorSanitizer in it.

Their run-time libraries have to be loaded before anything else, so a process of its own is needed:

    run_with_sanitizers(["-m", "pytest", "tests", "-x"], check=True)

or, from a shell, ``python -m cuda_on_cpu -m pytest tests``, with the folder that this package is in
on ``PYTHONPATH``. In it :func:`cuda_on_cpu.enable` compiles every kernel with both sanitizers, and
the first out-of-bounds access or misaligned vector ends the process with a report.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import build


def _library(name: str) -> str | None:
    arguments = [str(build.compiler()), f"-print-file-name={name}"]
    path = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.strip()
    return path if os.path.isabs(path) else None


def sanitizers_available() -> bool:
    """Whether g++ and its sanitizers' libraries are installed."""
    return build.compiler() is not None and _library("libasan.so") is not None


def _environment() -> dict[str, str]:
    """The environment variables that such a process needs, with those of this one."""
    preload = [_library("libasan.so"), _library("libubsan.so"), os.environ.get("LD_PRELOAD")]
    options = {
        "detect_leaks": 0,  # Python keeps what it allocated
        "alloc_dealloc_mismatch": 0,  # libraries with a C++ runtime of their own
        "handle_abort": 0,
        "symbolize": 1,
    }
    here = str(Path(__file__).resolve().parent.parent)
    path = [here, os.environ.get("PYTHONPATH")]
    return {
        **os.environ,
        "LD_PRELOAD": ":".join(p for p in preload if p),
        "ASAN_OPTIONS": ":".join(f"{k}={v}" for k, v in options.items()),
        "UBSAN_OPTIONS": "print_stacktrace=1",
        # The report goes to the descriptor of stderr, and pytest cannot show what it captured from
        # there once the process has ended.
        "PYTEST_ADDOPTS": os.environ.get("PYTEST_ADDOPTS", "") + " --capture=sys",
        "PYTHONPATH": os.pathsep.join(p for p in path if p),
    }


def run_with_sanitizers(
    arguments: Sequence[str], **options: Any
) -> subprocess.CompletedProcess[Any]:
    """``subprocess.run`` of this Python with `arguments`, with the sanitizers."""
    env = {**_environment(), **options.pop("env", {})}
    return subprocess.run(
        [sys.executable, *arguments], env=env, check=options.pop("check", False), **options
    )
