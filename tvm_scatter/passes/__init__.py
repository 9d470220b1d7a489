"""Relax passes that run ahead of LegalizeOps."""

from __future__ import annotations

from .fold_broadcast_index import FoldBroadcastIndex

__all__ = ["FoldBroadcastIndex"]
