"""Computes running sums and products by the scans of the target, where it has any.

TVM dispatches its operators before it legalizes, so these are lowered in front of that.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.ir import Op

from tvm_scatter.lowering.legalize_scan import KINDS, legalize_scan
from tvm_scatter.options import current_options


def OwnScans() -> tvm.transform.Pass:
    """The pass. It changes nothing where the options switch this package off."""

    def lower(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        if not current_options().enabled:
            return mod
        others = [name for name in Op.list_op_names() if name not in KINDS]
        return relax.transform.LegalizeOps(dict.fromkeys(KINDS, legalize_scan), others)(mod)

    return tvm.transform.module_pass(lower, opt_level=0, name="OwnScans")
