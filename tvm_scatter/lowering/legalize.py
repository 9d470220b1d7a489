"""The ``FLegalize`` of the scatter operators, and its installation."""

from __future__ import annotations

from tvm import relax

from tvm_scatter.ops.names import BATCH, NAMES, SELECT_ROWS, STOCK_OPERATORS
from tvm_scatter.options import current_options

from .legalizations import put_in_front
from .make import make
from .plan import plan
from .select_rows import select_kernel
from .target import target_of_call


def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Plan a call of a scatter operator or of a batch, and emit the calls that compute it.

    Raises
    ------
    ScatterError
        For bad operands, and on a target without a strategy if TVM has no equivalent operator.
    """
    if call.op.name == SELECT_ROWS:
        return select_kernel(bb, call)
    return make(bb, plan(call, target_of_call(call), current_options()))


def install_legalizations() -> None:
    """Put :func:`legalize` in front of TVM's functions. Calling it again changes nothing."""
    put_in_front(STOCK_OPERATORS, legalize)
    put_in_front((*NAMES, SELECT_ROWS, BATCH), legalize, ours=True)
