"""FLegalize for the scatter operators, and what installs and removes it."""

from __future__ import annotations

from tvm import relax
from tvm.target import Target

from tvm_scatter.ops.names import BATCH, NAMES, SELECT_ROWS, STOCK_OPERATORS
from tvm_scatter.options import current_options
from tvm_scatter.selection.strategy import OpStrategy, strategy_for

from .batched import is_batch
from .legalizations import put_in_front
from .make import make
from .plan import plan
from .select_rows import select_kernel


def target_of(data: relax.Expr) -> Target:
    """The target that a call on data is compiled for.

    It is as the data is annotated, else the current one, and llvm if none is named.
    """
    vdevice = getattr(data.ty, "vdevice", None)
    if vdevice is not None and vdevice.target is not None:
        return vdevice.target
    return Target.current(allow_none=True) or Target("llvm")


def strategy_of(data: relax.Expr) -> tuple[Target, OpStrategy | None]:
    """The target that a call on data is compiled for, and its strategy."""
    target = target_of(data)
    return target, strategy_for(target.kind.name)


def target_of_call(call: relax.Call) -> Target:
    """The target that a call of a scatter, or of several together, is compiled for."""
    return target_of(call.args[0].fields[0] if is_batch(call) else call.args[0])


def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Replace a call of a scatter operator, or of several together, by what is planned for it.

    Raises
    ------
    ScatterError
        For bad operands, and for what TVM has no operator for on a target without a strategy.
    """
    if call.op.name == SELECT_ROWS:
        return select_kernel(bb, call)
    return make(bb, plan(call, target_of_call(call), current_options()))


def install_legalizations() -> None:
    """Put the strategy in front of TVM's legalization; harmless when it is there already."""
    put_in_front(STOCK_OPERATORS, legalize)
    put_in_front((*NAMES, SELECT_ROWS, BATCH), legalize, ours=True)
