"""Relax passes that run ahead of LegalizeOps."""

from __future__ import annotations

from collections.abc import Callable

import tvm

from tvm_scatter.options import Options

from .bulk_scatters import BulkScatters
from .fold_broadcast_index import FoldBroadcastIndex
from .reuse_buffers import ReuseBuffers

#: In the order in which they run: the option that switches a pass, and what makes it.
PASSES: tuple[tuple[str, Callable[[Options], tvm.transform.Pass]], ...] = (
    ("fold_broadcast_index", lambda options: FoldBroadcastIndex()),
    ("bulk", lambda options: BulkScatters(options.in_place, options.donate)),
    ("in_place", lambda options: ReuseBuffers(options.donate)),
)


def passes(options: Options) -> list[tvm.transform.Pass]:
    """The passes that the options leave switched on."""
    if not options.enabled:
        return []
    return [make(options) for switch, make in PASSES if getattr(options, switch)]


__all__ = ["PASSES", "BulkScatters", "FoldBroadcastIndex", "ReuseBuffers", "passes"]
