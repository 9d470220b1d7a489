"""TVM's table of legalizations: putting functions in front of its own, and giving it back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Op

LEVEL = 11
_STOCK_LEVEL = 10

Legalize = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]
#: TVM's own functions while ours are in force. TVM's module keeps them, not this one, so that a
#: reloaded or second copy of it never takes an older copy's function for TVM's.
stock: dict[str, Legalize] = tvm.__dict__.setdefault("_tvm_scatter_stock_legalize", {})


def put_in_front(names: Iterable[str], legalize: Legalize, ours: bool = False) -> None:
    """Let a function legalize some operators; harmless when it does already.

    Parameters
    ----------
    ours : bool
        Whether the operators are this package's, so that there is nothing to give back.
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
    """Let TVM legalize its own operators again. Those of this package stay usable."""
    for name, legalize in stock.items():
        Op.get(name).reset_attr("FLegalize")
        tvm.ir.register_op_attr(name, "FLegalize", legalize, level=_STOCK_LEVEL)
    stock.clear()
