"""TVM's default schedules, of which one may fail: the next then takes the function.

A rule of ``tvm.s_tir.dlight`` that is not made for a function may raise instead of saying so, or
return a function that is no longer valid. The whole model then fails to compile.
"""

from __future__ import annotations

import logging
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import analysis, dlight
from tvm.target import Target

from tvm_scatter.emit.parameters import SCHEDULED
from tvm_scatter.lowering.row_reductions import has_parallel_axes_alone

from .empty_launches import without_empty_launches
from .gemv_order import mixes_up_rows
from .gpu import (
    Divisions,
    ExponentialSums,
    FewColumns,
    FewRows,
    Gather,
    Products,
    RowReductions,
    RowSums,
    SharedLoop,
    ShortReductions,
    Transposes,
    WarpRows,
    WholeReductions,
)
from .reductions_of_one import without_reductions_of_one
from .serial import serial
from .wide_reductions import with_wide_reductions

#: Not replaced where it is defined, so that it is found after a reload of this package, too.
_STOCK = dlight.base.ApplyDefaultSchedule
#: Rules of reductions. Each computes what can be computed in place before it looks for one. Of long
#: chains that takes most of the time.
_OF_REDUCTIONS = (
    *(ShortReductions, RowReductions, WarpRows),
    *(dlight.gpu.GEMV, dlight.gpu.Reduction, dlight.gpu.GeneralReduction),
)
_logger = logging.getLogger("tvm_scatter")


@tvm.transform.module_pass(opt_level=0, name="ApplyDefaultSchedule")
class GuardedDefaultSchedule:
    """``dlight.ApplyDefaultSchedule``, where a rule that fails is like one that does not apply.

    Parameters
    ----------
    *rules : dlight.ScheduleRule
        The rules, tried in this order, behind those of this package for GPUs, for each function
        that is not scheduled yet.
    """

    def __init__(self, *rules: dlight.ScheduleRule) -> None:
        self.rules = (
            ExponentialSums(),
            SharedLoop(),
            Gather(),
            Transposes(),
            RowSums(),
            FewRows(),
            ShortReductions(),
            RowReductions(),
            WarpRows(),
            WholeReductions(),
            FewColumns(),
            Products(),
            Divisions(),
            *rules,
        )

    def transform_module(self, mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        """Schedule the functions of a module."""
        for name, function in mod.functions_items():
            if isinstance(function, tirx.PrimFunc):
                scheduled = self._scheduled(name.name_hint, function)
                if scheduled is not None:
                    scheduled = without_empty_launches(scheduled)
                    mod[name] = scheduled.with_attr(SCHEDULED, True)
        return mod

    def _scheduled(self, name: str, function: tirx.PrimFunc) -> tirx.PrimFunc | None:
        if _is_scheduled(function):
            return function
        function = without_reductions_of_one(function)
        target = function.attrs.get("target") or Target.current(allow_none=False)
        wide = with_wide_reductions(function, integers=True)
        computes_elements = has_parallel_axes_alone(function)
        failures: list[str] = []
        for rule in self.rules:
            if computes_elements and isinstance(rule, _OF_REDUCTIONS):
                continue
            try:
                # The rules of this package for GPUs reduce in single precision by themselves.
                given = function if isinstance(rule, (Gather, RowSums)) else wide
                scheduled = _apply(rule, given, target)
            except Exception as error:  # a rule may fail with whatever its code raises
                failures.append(f"{type(rule).__name__} ({_brief(error)})")
                continue
            if scheduled is not None:
                _say(name, failures, type(rule).__name__)
                return scheduled
        scheduled = serial(wide, target)
        _say(name, failures, "unscheduled" if scheduled is None else "a single thread")
        return scheduled


def install_guard() -> None:
    """Let TVM's pipelines, which look the pass up when they run, find the guarded one."""
    dlight.ApplyDefaultSchedule = GuardedDefaultSchedule


def uninstall_guard() -> None:
    """Restore TVM's own pass."""
    dlight.ApplyDefaultSchedule = _STOCK


def _is_scheduled(function: tirx.PrimFunc) -> bool:
    return bool(function.attrs.get(SCHEDULED, False))


def _apply(
    rule: dlight.ScheduleRule, function: tirx.PrimFunc, target: Target
) -> tirx.PrimFunc | None:
    if isinstance(rule, dlight.gpu.GEMV) and mixes_up_rows(function):
        return None
    schedule = rule.apply(function, target, False)
    if schedule is None:
        return None
    scheduled = schedule.mod["main"]
    analysis.verify_well_formed(scheduled)
    return scheduled


def _say(name: str, failures: list[str], taken: str) -> None:
    if failures:
        text = "TVM's default schedule of %s fails: %s; it gets the next: %s."
        _logger.warning(text, name, "; ".join(failures), taken)


def _brief(error: Exception) -> str:
    """The class of an error, and the line of its text that says most."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    said = next((line for line in lines if line.startswith("Error message:")), last)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
