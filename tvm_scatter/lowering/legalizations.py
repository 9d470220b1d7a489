"""Replaces legalizations in TVM's table of operators, and restores TVM's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Op

LEVEL = 11
_STOCK_LEVEL = 10

Legalize = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]
#: TVM's own functions while ours replace them. They are stored in TVM's module, not in this one.
#: Otherwise a reloaded or second copy of this module would take the functions of the first copy
#: for TVM's.
stock: dict[str, Legalize] = tvm.__dict__.setdefault("_tvm_scatter_stock_legalize", {})


def put_in_front(names: Iterable[str], legalize: Legalize, ours: bool = False) -> None:
    """Let a function legalize some operators. Calling it again changes nothing.

    Parameters
    ----------
    ours : bool
        Whether this package has registered the operators, so that TVM has no legalization to
        restore.
    """
    for name in names:
        op = Op.get(name)
        current: Any = op.get_attr("FLegalize")
        if not ours:
            stock.setdefault(name, current)
        if current is not None:
            op.reset_attr("FLegalize")
        tvm.ir.register_op_attr(name, "FLegalize", legalize, level=LEVEL)


def give_back() -> None:
    """Restore TVM's legalizations of its own operators. Those of this package stay usable."""
    for name, legalize in stock.items():
        Op.get(name).reset_attr("FLegalize")
        # TVM computes some operators by functions of the host, and has no legalization for them.
        if legalize is not None:
            tvm.ir.register_op_attr(name, "FLegalize", legalize, level=_STOCK_LEVEL)
    stock.clear()
