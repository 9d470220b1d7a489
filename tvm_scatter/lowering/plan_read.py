"""Decides how a call that reads by index is computed."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax
from tvm.target import Target

from tvm_scatter.bounds.device_check import CheckKind
from tvm_scatter.ops.read_ops import NAMES as OUR_OPERATORS
from tvm_scatter.options import Options
from tvm_scatter.selection.backend import backend_of
from tvm_scatter.selection.strategy import strategy_for

from .reads import Read, read_of


@dataclass(frozen=True)
class ReadPlan:
    """How this package computes a call that reads by index.

    Attributes
    ----------
    read : Read
        The operands and rules of the read.
    guard : bool
        Whether the read returns zero for a bad index. If not, either no index can be bad when the
        read runs, or indices are trusted.
    check : CheckKind or None
        How bad indices are found that must be reported; ``None`` if none must be.
    fuses : bool
        Whether TVM may make one function of the read and the operators in front and behind.
    """

    read: Read
    guard: bool
    check: CheckKind | None
    fuses: bool = False


def plan_read(call: relax.Call, target: Target, options: Options) -> ReadPlan | None:
    """Decide how a call that reads by index is computed; ``None`` leaves it to TVM.

    Nothing is emitted. Planning the same call twice gives equal plans.

    Raises
    ------
    ScatterError
        If the operands are not valid together.
    """
    strategy = strategy_for(target.kind.name)
    if call.op.name not in OUR_OPERATORS and (strategy is None or not options.enabled):
        return None
    read = read_of(call)
    if read is None:
        return None
    bounds = "drop"
    if strategy is not None:
        backend = strategy.backend
        bounds = (backend.bounds_once_checked if read.checked else backend.bounds_under)(options)
    fuses = options.gather and backend_of(target).schedules_reads
    if bounds == "trust" or read.is_in_range():
        return ReadPlan(read, guard=False, check=None, fuses=fuses)
    if bounds == "drop" or strategy is None or (read.is_empty() and read.check.has_no_entries):
        return ReadPlan(read, guard=True, check=None, fuses=fuses)
    if strategy.device_check is None:
        return ReadPlan(read, guard=False, check=CheckKind.HOST, fuses=fuses)
    return ReadPlan(read, guard=True, check=CheckKind.BESIDE, fuses=fuses)
