"""The result of a case in float64, and how far from it another may be."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import torch

from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.reductions import ROUNDOFF

from .case import Case

#: Roundings of a message before it is summed, at most.
_OPERATORS = 16
#: The error of a whole model relative to its largest result.
_OF_A_MODEL = 1e-4


@dataclass(frozen=True)
class Reference:
    """What is right.

    Attributes
    ----------
    result : torch.Tensor
        In float64.
    bound : torch.Tensor
        The greatest difference that rounding explains.
    """

    result: torch.Tensor
    bound: torch.Tensor

    def check(self, name: str, found: torch.Tensor) -> None:
        """Raise if a result is wrong.

        Raises
        ------
        ScatterError
            If it is.
        """
        if found.shape != self.result.shape:
            shapes = f"{tuple(found.shape)} instead of {tuple(self.result.shape)}"
            raise ScatterError(f"bench: {name} is wrong: it is of the shape {shapes}.")
        off = (found.double() - self.result).abs()
        wrong = int((~(off <= self.bound)).sum())
        if wrong:
            raise ScatterError(
                f"bench: {name} is wrong: {wrong} of {off.numel()} numbers, by up to "
                f"{float(off.nan_to_num(torch.inf).max()):.2g}."
            )


def reference(case: Case) -> Reference:
    """Compute a case in float64.

    Messages may be summed one by one, in any order, each sum rounded to the stored type (Higham,
    "Accuracy and Stability of Numerical Algorithms", section 4.2).
    """
    exact = deepcopy(case.module).to(case.inputs[0].device).double()
    first, *others = (each.double() if each.is_floating_point() else each for each in case.inputs)
    with torch.no_grad():
        result = exact(first, *others)
        if case.counts is None:
            return Reference(result, _OF_A_MODEL * result.abs().max().clamp(min=1))
        magnitude = exact(first.abs(), *others).abs() + result.abs()
    roundoff = ROUNDOFF[str(case.inputs[0].dtype).removeprefix("torch.")]
    return Reference(result, 2 * roundoff * (case.counts + _OPERATORS) * magnitude + 1e-30)
