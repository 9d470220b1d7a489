"""How a call that reads by index is computed: decided here, and made elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax
from tvm.target import Target

from tvm_scatter.bounds.device_check import CheckKind
from tvm_scatter.ops.read_ops import NAMES as OUR_OPERATORS
from tvm_scatter.options import Options
from tvm_scatter.selection.strategy import strategy_for

from .reads import Read, read_of


@dataclass(frozen=True)
class ReadPlan:
    """How a call is computed that TVM's own legalization is not left to.

    Attributes
    ----------
    read : Read
        What is read.
    guard : bool
        Whether a bad index reads a zero; otherwise there is none, or nobody looks.
    check : CheckKind or None
        Who looks for bad indices that must be reported; ``None`` if nobody does.
    """

    read: Read
    guard: bool
    check: CheckKind | None


def plan_read(call: relax.Call, target: Target, options: Options) -> ReadPlan | None:
    """Decide how a call is computed that reads by index; ``None`` leaves it to TVM.

    Nothing is emitted, and two plans of one call are equal.

    Raises
    ------
    ScatterError
        If operands do not fit each other.
    """
    strategy = strategy_for(target.kind.name)
    if call.op.name not in OUR_OPERATORS and (strategy is None or not options.enabled):
        return None
    read = read_of(call)
    if read is None:
        return None
    bounds = "drop" if strategy is None else strategy.backend.bounds_under(options)
    if bounds == "trust" or read.is_in_range():
        return ReadPlan(read, guard=False, check=None)
    if bounds == "drop" or strategy is None or (read.is_empty() and read.check.has_no_entries):
        return ReadPlan(read, guard=True, check=None)
    if strategy.device_check is None:
        return ReadPlan(read, guard=False, check=CheckKind.HOST)
    return ReadPlan(read, guard=True, check=CheckKind.BESIDE)
