"""The target that a call is compiled for, and the strategy of that target."""

from __future__ import annotations

from tvm import relax
from tvm.target import Target

from tvm_scatter.selection.strategy import OpStrategy, strategy_for

from .batched import is_batch


def target_of(data: relax.Expr) -> Target:
    """The target that a call on data is compiled for.

    It is the target of the data's ``vdevice``, or else the current target, or else llvm.
    """
    vdevice = getattr(data.ty, "vdevice", None)
    if vdevice is not None and vdevice.target is not None:
        return vdevice.target
    return Target.current(allow_none=True) or Target("llvm")


def strategy_of(data: relax.Expr) -> tuple[Target, OpStrategy | None]:
    """The target that a call on data is compiled for, and its strategy, if it has one."""
    target = target_of(data)
    return target, strategy_for(target.kind.name)


def target_of_call(call: relax.Call) -> Target:
    """The target that a call of a scatter or of a batch is compiled for."""
    return target_of(call.args[0].fields[0] if is_batch(call) else call.args[0])
