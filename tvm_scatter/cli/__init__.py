"""The command line: ``tvm-scatter demo``, ``compile``, ``explain`` and ``doctor``."""

from __future__ import annotations

from .main import main

__all__ = ["main"]
