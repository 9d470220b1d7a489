"""The kernel cache: compiled CUDA in memory and on disk, by a key of all that it depends on.

Compiling the smallest kernel takes most of a second, nearly all of it spent on CUDA's headers, and
TVM does it for every build.
"""

from __future__ import annotations

from .callbacks import install_cache, uninstall_cache
from .compile import forget, statistics
from .store import Store

__all__ = ["Store", "forget", "install_cache", "statistics", "uninstall_cache"]
