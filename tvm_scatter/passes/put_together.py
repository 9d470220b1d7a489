"""What this package computes by one function, before TVM fuses what is left."""

from __future__ import annotations

import tvm
from tvm import relax

from tvm_scatter.ops.names import NAMES, STOCK_OPERATORS

from .fuse_computed_rows import fuse_computed_rows
from .fuse_moved_reads import fuse_moved_reads
from .fuse_product_rows import fuse_product_rows
from .own_lines import OPERATORS_OF_LINES
from .reads_apart import reads_apart
from .share_loops import share_loops


def put_together(mod: tvm.IRModule) -> tvm.IRModule:
    """The module, in which one function takes the place of several.

    Parameters
    ----------
    mod : tvm.IRModule
        With functions that are legalized and have TVM's patterns, but are not fused.
    """
    mod = fuse_computed_rows(fuse_product_rows(mod))
    return share_loops(reads_apart(fuse_moved_reads(mod)))


def legalized_beside_scatters(mod: tvm.IRModule) -> tvm.IRModule:
    """The module as :func:`put_together` takes it, in which scatters, sorts and the like stay.

    No function is put together with those, which are as opaque as what they are lowered to.
    """
    others = [*STOCK_OPERATORS, *NAMES, *OPERATORS_OF_LINES]
    steps = [relax.transform.LegalizeOps(skip_ops=others), relax.transform.AnnotateTIROpPattern()]
    return tvm.transform.Sequential(steps)(mod)
