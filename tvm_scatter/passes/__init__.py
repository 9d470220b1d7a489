"""Relax passes that run ahead of LegalizeOps."""

from __future__ import annotations

from collections.abc import Callable

import tvm

from tvm_scatter.options import Options

from .branch_functions import BranchFunctions
from .canonicalize import Canonicalize
from .defer_bounds_check import DeferBoundsCheck
from .fill_data import FillData
from .fold_broadcast_index import FoldBroadcastIndex
from .fuse_attention import FuseAttention
from .fuse_epilogues import FuseEpilogues
from .fuse_means import FuseMeans
from .fuse_producers import FuseProducers
from .fuse_row_reductions import FuseRowReductions
from .fuse_softmax import FuseSoftmax
from .horizontal_fusion import HorizontalFusion
from .host_constants import HostConstants
from .in_dataflow import InDataflow
from .merge_chains import MergeScatterChains
from .narrow_products import NarrowProducts
from .own_lines import OwnLines
from .products_of_reads import ProductsOfReads
from .read_fields import ReadFields
from .reuse_buffers import ReuseBuffers
from .row_products import RowProducts
from .shapes_behind_products import ShapesBehindProducts
from .share_checks import ShareChecks
from .share_orders import ShareOrders
from .share_values import ShareValues
from .size_bounds import SizeBounds
from .turn_lines import TurnLines
from .unchecked_numbers import UncheckedNumbers
from .unread_indices import UnreadIndices
from .unwritten_softmax import UnwrittenSoftmax
from .updates_by_place import UpdatesByPlace
from .use_index_facts import UseIndexFacts

#: In the order in which the passes run: the option that switches each pass, and its constructor.
#: They run behind :func:`InDataflow`, :func:`Canonicalize`, :func:`ReadFields` and
#: :func:`UncheckedNumbers`, which nobody need leave out.
PASSES: tuple[tuple[str, Callable[[Options], tvm.transform.Pass]], ...] = (
    ("share_values", lambda options: ShareValues()),
    ("attention", lambda options: FuseAttention()),
    ("fold_broadcast_index", lambda options: FoldBroadcastIndex()),
    ("turn_lines", lambda options: TurnLines(options.in_place, options.donate)),
    ("bulk", lambda options: MergeScatterChains(options.in_place, options.donate)),
    ("by_place", lambda options: UpdatesByPlace(options.in_place, options.donate)),
    ("index_facts", lambda options: UseIndexFacts(options.in_place, options.donate)),
    ("row_sums", lambda options: _row_sums()),
    ("reductions", lambda options: UnwrittenSoftmax()),
    ("fuse", lambda options: _fuse(options)),
    ("share_order", lambda options: _orders()),
    ("fill", lambda options: FillData()),
    ("epilogue", lambda options: FuseEpilogues()),
    ("share_checks", lambda options: ShareChecks()),
    ("in_place", lambda options: ReuseBuffers(options.donate)),
    ("batch", lambda options: HorizontalFusion(always=options.batch is True)),
)


def _fuse(options: Options) -> tvm.transform.Pass:
    """What makes neighbours of a scatter a part of it."""
    return tvm.transform.Sequential([FuseMeans(), FuseSoftmax(), FuseProducers(options.donate)])


def _row_sums() -> tvm.transform.Pass:
    """What makes sums compute the rows that they read by index."""
    return tvm.transform.Sequential([ProductsOfReads(), FuseRowReductions()])


def _orders() -> tvm.transform.Pass:
    """What gives scatters an order, and takes from them what they then do not read."""
    return tvm.transform.Sequential([ShareOrders(), UnreadIndices()])


def passes(options: Options) -> list[tvm.transform.Pass]:
    """The passes to run. An option of ``None`` lets the pass decide by itself."""
    if not options.enabled:
        return []
    wanted = [make for switch, make in PASSES if getattr(options, switch) is not False]
    first = [InDataflow(), Canonicalize(), ReadFields(), UncheckedNumbers()]
    return [*first, *(make(options) for make in wanted)]


def last_passes(options: Options, on_gpu: bool, schedules: bool) -> list[tvm.transform.Pass]:
    """The passes that run behind all others, directly in front of LegalizeOps.

    Parameters
    ----------
    schedules : bool
        Whether functions on CPUs get schedules of this package.
    """
    if not options.enabled:
        return []
    found = [RowProducts(on_gpu)] if on_gpu or schedules else []
    if on_gpu and options.products:
        found += [NarrowProducts(), ShapesBehindProducts()]
    return found


__all__ = [
    "PASSES",
    "BranchFunctions",
    "Canonicalize",
    "DeferBoundsCheck",
    "FillData",
    "FoldBroadcastIndex",
    "FuseAttention",
    "FuseEpilogues",
    "FuseMeans",
    "FuseProducers",
    "FuseRowReductions",
    "FuseSoftmax",
    "HorizontalFusion",
    "HostConstants",
    "InDataflow",
    "MergeScatterChains",
    "NarrowProducts",
    "OwnLines",
    "ProductsOfReads",
    "ReadFields",
    "ReuseBuffers",
    "RowProducts",
    "ShapesBehindProducts",
    "ShareChecks",
    "ShareOrders",
    "ShareValues",
    "SizeBounds",
    "TurnLines",
    "UncheckedNumbers",
    "UnreadIndices",
    "UnwrittenSoftmax",
    "UpdatesByPlace",
    "UseIndexFacts",
    "last_passes",
    "passes",
]
