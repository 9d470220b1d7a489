"""Patched: each block copies a span of the output and applies the updates that go there."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, ceil_div
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.strategies.cuda.codegen.launch import launch

from .steps import stages

#: The most updates of a batch. Every block that has a part of the batch looks at all of them.
_MOST = 4096
_THREADS = 256
_ACCESS_BYTES = 16


class Patched(Implementation):
    """Copy and update in one launch, without atomics; the last update wins.

    It has not been measured yet. So it says no cost, and is used only where it is asked for.
    """

    name = "patched"
    deterministic = True
    summary = "few updates for each batch of a tensor that is copied, such as a cache"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        each = problem.count * problem.slice if problem.index_slice else problem.count
        if not each.is_static or each.constant > _MOST:
            return f"blocks would look through {each} updates of a batch, which is too many"
        return None

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        # Two to four accesses in flight are best for a copy; a small output needs many blocks.
        small = problem.data_size.is_static and problem.data_size.constant <= 1 << 18
        return {"per_thread": (1, 2, 4) if small else (4, 2, 8)}

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        return stages.count_bytes(problem, sizes)

    def emit(self, operands: Operands, config: Config) -> None:
        if operands.data is not None and operands.problem.reduces_into_data:
            _patch(operands, config, "data")
            return
        stages.copy_data(operands)
        stages.around(operands, lambda: _patch(operands, config, "out"))


def _patch(operands: Operands, config: Config, source: str) -> None:
    per_thread = config["per_thread"]
    span = _THREADS * per_thread * (_ACCESS_BYTES // item_bytes(operands.problem.data_dtype))
    launch(
        operands,
        ("patched",),
        f"  patch<P, {_THREADS}, {per_thread}>(out, {source}, updates, indices, sizes);",
        ceil_div(operands.sizes.data_size, span),
        _THREADS,
    )
