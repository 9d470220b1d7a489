"""The record of CPUs as a kind of target."""

from __future__ import annotations

from tvm_scatter.selection.backend import Backend

from .compaction import COMPACTION

LLVM = Backend("llvm", device="cpu", compaction=COMPACTION)
