"""Lets TVM's tuner measure a scheduled function once, as the only design of its space."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import TensorInfo
from tvm.tirx.analysis import undefined_vars
from tvm.tirx.buffer import BufferType

from tvm_scatter.emit.parameters import SCHEDULED


def is_scheduled(mod: Any) -> bool:
    """Whether all functions of a tuning task are scheduled already."""
    functions = mod.functions.values() if isinstance(mod, tvm.IRModule) else [mod]
    return all(
        isinstance(function, tirx.PrimFunc)
        and function.attrs is not None
        and bool(function.attrs.get(SCHEDULED, False))
        for function in functions
    )


def only_design() -> Any:
    """A design space with one design: the function as it is."""
    return ms.space_generator.ScheduleFn(
        lambda schedule: schedule, sch_rules=[], postprocs=[], mutator_probs={}
    )


def tensors_for(function: tirx.PrimFunc) -> list[Any] | None:
    """The arguments with which a runner can call a function, or ``None`` if it cannot.

    It cannot if sizes are symbolic, or if the function uses a bare handle, which means page-locked
    memory. A handle that only orders calls is not used, and can be any tensor.
    """
    read = undefined_vars(function.body, [])
    tensors = []
    for parameter in function.params:
        tensor = parameter.ty
        if isinstance(tensor, BufferType):
            if not all(isinstance(extent, tirx.IntImm) for extent in tensor.shape):
                return None
            tensors.append(TensorInfo(tensor.dtype.dtype, [int(extent) for extent in tensor.shape]))
        elif any(parameter.same_as(variable) for variable in read):
            return None
        else:
            tensors.append(TensorInfo("uint8", [1]))
    return tensors


@derived_object
class MeasureOnce(ms.search_strategy.PySearchStrategy):
    """A search that measures every design once, and skips functions that no runner can call."""

    def __init__(self) -> None:
        super().__init__()
        self.candidates: list[Any] = []

    def _initialize_with_tune_context(self, context: Any) -> None:
        pass

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: list[Any],
        database: Any = None,
        cost_model: Any = None,
    ) -> None:
        for design in design_spaces:
            (function,) = design.mod.functions.values()
            tensors = tensors_for(function)
            if tensors is not None:
                self.candidates.append(ms.MeasureCandidate(design, tensors))

    def post_tuning(self) -> None:
        self.candidates = []

    def generate_measure_candidates(self) -> list[Any] | None:
        candidates, self.candidates = self.candidates, []
        return candidates or None

    def notify_runner_results(self, measure_candidates: Any, results: Any) -> None:
        pass

    def clone(self) -> Any:
        return MeasureOnce()
