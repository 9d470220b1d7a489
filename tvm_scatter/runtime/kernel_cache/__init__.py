"""Compiled CUDA is kept, in memory and on disk, under everything that it depends on.

Compiling the smallest kernel takes most of a second, nearly all of it spent on CUDA's headers, and
TVM does it for every build.
"""

from __future__ import annotations

from .callbacks import install_cache, uninstall_cache
from .compile import forget, statistics
from .store import Store

__all__ = ["Store", "forget", "install_cache", "statistics", "uninstall_cache"]
