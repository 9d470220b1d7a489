"""Sequential: applies updates in order, in parallel over batches and columns only."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes
from tvm_scatter.selection.strategy import Config, Implementation

from .steps import ordered


class Sequential(Implementation):
    """All updates of a batch and a block of columns in order; the last one wins."""

    name = "sequential"
    deterministic = True
    fuses = True
    summary = "few updates, many batches or wide rows; the meaning of scatter itself"

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config) -> Any:
        return ordered.counts_bytes(problem, sizes)

    def emit(self, operands: Operands, config: Config) -> None:
        ordered.scatter(operands, divide_places=False)
