"""A problem compiled by itself, ready to be called on device memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm.target import Target

from tvm_scatter.lowering.emission import build_prim_func, workspace_size
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.signature import Signature
from tvm_scatter.selection.strategy import Selection


@dataclass(frozen=True)
class Kernel:
    """A compiled selection.

    Attributes
    ----------
    selection : Selection
        What was compiled.
    function : callable
        Takes data, indices, updates, out and, if ``workspace_bytes`` is not ``None``, a workspace.
    workspace_bytes : int or None
        Scratch memory that it needs.
    """

    selection: Selection
    function: Any
    workspace_bytes: int | None


def compile_selections(
    problem: ScatterProblem,
    signature: Signature,
    selections: Sequence[Selection],
    target: Target,
) -> list[Kernel]:
    """Compile ways to compute a static problem together, into this process."""
    names = [f"selection_{i}" for i in range(len(selections))]
    functions = {
        name: build_prim_func(problem, signature, selection, target).with_attr(
            "global_symbol", name
        )
        for name, selection in zip(names, selections, strict=True)
    }
    module = tvm.compile(tvm.IRModule(functions), target=target)
    return [
        Kernel(selection, module[name], workspace_size(problem, selection, {}, target))
        for name, selection in zip(names, selections, strict=True)
    ]
