"""The command line ``tvm-scatter``: a module for each command."""

from __future__ import annotations

from .main import main

__all__ = ["main"]
