"""How TVM's tuner takes a function that is scheduled already: as its only design, measured once."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import TensorInfo
from tvm.tirx.analysis import undefined_vars
from tvm.tirx.buffer import BufferType


def is_scheduled(mod: Any) -> bool:
    """Whether all that a task of the tuner consists of is scheduled."""
    functions = mod.functions.values() if isinstance(mod, tvm.IRModule) else [mod]
    return all(
        isinstance(function, tirx.PrimFunc)
        and function.attrs is not None
        and bool(function.attrs.get("tirx.is_scheduled", False))
        for function in functions
    )


def only_design() -> Any:
    """A space of designs that holds a function unchanged."""
    return ms.space_generator.ScheduleFn(
        lambda schedule: schedule, sch_rules=[], postprocs=[], mutator_probs={}
    )


def tensors_for(function: tirx.PrimFunc) -> list[Any] | None:
    """The tensors that a runner calls a function with, or ``None`` if it cannot call it.

    That is where sizes are known at run time only, and where memory is page-locked, which a runner
    has none of. A handle that is there for the order of calls only can be any tensor.
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
    """A search that is over when all designs are measured; what no runner can call is passed by."""

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
