"""The float64 reference of a workload, and how far a result may be off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.reductions import ROUNDOFF
from tvm_scatter.tuning.space.workloads import Workload

from .peers import TORCH_REDUCE


@dataclass(frozen=True)
class Reference:
    """The result in float64, the magnitudes that went into each element, and the error allowed.

    The bound is that of adding an element's updates one by one, in any order, each sum rounded to
    the stored type (Higham, "Accuracy and Stability of Numerical Algorithms", section 4.2): the
    number of additions times the unit roundoff, relative to the sum of magnitudes.
    """

    workload: Workload
    result: Any
    magnitude: Any
    bound: Any

    @staticmethod
    def of(workload: Workload, data: Any, index: Any, updates: Any) -> Reference:
        """Of a workload's tensors, as PyTorch has them."""
        import torch

        exact, source = data.double(), updates.double()
        place = expanded(index, updates)
        if workload.reduces.is_store or workload.reduces.is_extreme:
            if workload.reduces.is_store:
                result = exact.scatter(1, place, source)
            else:
                result = exact.scatter_reduce(1, place, source, TORCH_REDUCE[workload.reduction])
            nothing = torch.zeros(1, device=data.device)
            return Reference(workload, result, result.abs().clamp(min=1e-30), nothing)
        if index.ndim > 1:
            result = exact.scatter_add(1, place, source)
            magnitude = exact.abs().scatter_add(1, place, source.abs())
            counts = torch.zeros_like(exact).scatter_add(1, place, torch.ones_like(source))
        else:
            result = exact.index_add(1, index, source)
            magnitude = exact.abs().index_add(1, index, source.abs())
            ones = torch.ones((1, workload.count, 1), dtype=torch.double, device=data.device)
            counts = torch.zeros((1, workload.extent, 1), dtype=torch.double, device=data.device)
            counts = counts.index_add(1, index, ones)
        # Twice, for the rounding of the inputs to the reference's magnitudes.
        bound = 2 * ROUNDOFF.get(workload.dtype, 0.0) * (counts + 1)
        return Reference(workload, result, magnitude.clamp(min=1e-30), bound)

    def check(self, result: Any, name: str) -> float:
        """The largest error of a result.

        Raises
        ------
        ScatterError
            If it is beyond the bound.
        """
        off = self._errors(result)
        if not bool((off <= self.bound).all()):
            raise ScatterError(
                f"bench: {name} is wrong on {self.workload.name!r}: off by {float(off.max()):.2g} "
                "of the magnitudes summed."
            )
        return float(off.max())

    def _errors(self, result: Any) -> Any:
        if self.workload.reduces.is_store and self.workload.distribution != "permutation":
            # Of several updates of one place any may win; that none is lost is tested elsewhere.
            return result.isfinite().logical_not().double()
        return (result.double() - self.result).abs() / self.magnitude


def expanded(index: Any, updates: Any) -> Any:
    """An index for each element of the updates."""
    if index.ndim < updates.ndim:
        index = index[..., None]
    return index.expand(updates.shape)
