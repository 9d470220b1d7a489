"""Computes running sums and products, sorts, and the smallest elements, as the target does it best.

TVM dispatches these operators before it legalizes, so they are lowered in front of that.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Op

from tvm_scatter.lowering.legalize_scan import KINDS, legalize_scan
from tvm_scatter.lowering.legalize_smallest import TOPK, legalize_smallest
from tvm_scatter.lowering.legalize_sort import ARGSORT, legalize_argsort
from tvm_scatter.options import current_options

_LEGALIZE = {
    **dict.fromkeys(KINDS, legalize_scan),
    TOPK: legalize_smallest,
    ARGSORT: legalize_argsort,
}


def OwnLines() -> tvm.transform.Pass:
    """The pass. It changes nothing where the options switch this package off."""

    def lower(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        if not current_options().enabled:
            return mod
        others = _others(len(Op.list_op_names()))
        return relax.transform.LegalizeOps(_LEGALIZE, others)(mod)

    return tvm.transform.module_pass(lower, opt_level=0, name="OwnLines")


@cache
def _others(_registered: int) -> Any:
    """The operators that are left alone: a thousand names, made anew where there are more."""
    return tvm.runtime.convert([name for name in Op.list_op_names() if name not in _LEGALIZE])
