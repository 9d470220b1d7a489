"""A problem compiled by itself, ready to be called on device memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm.target import Target

from tvm_scatter.emission import Signature, build_prim_func, workspace_size
from tvm_scatter.problem import ScatterProblem
from tvm_scatter.strategy import Selection


@dataclass(frozen=True)
class Candidate:
    """One way to compute a problem: what is selected, and the operands' shapes."""

    problem: ScatterProblem
    signature: Signature
    selection: Selection


@dataclass(frozen=True)
class Kernel:
    """A compiled candidate.

    Attributes
    ----------
    candidate : Candidate
        What was compiled.
    function : callable
        Takes data, indices, updates, out and, if ``workspace_bytes`` is not ``None``, a workspace.
    workspace_bytes : int or None
        Scratch memory that it needs.
    """

    candidate: Candidate
    function: Any
    workspace_bytes: int | None


def compile_candidates(candidates: Sequence[Candidate], target: Target) -> list[Kernel]:
    """Compile candidates together: one module, and for CUDA one compilation of one source.

    Each function has a name of its own; nearly all the time of compiling a small CUDA kernel goes
    into headers, which are read once here.
    """
    functions: dict[str, Any] = {}
    for i, candidate in enumerate(candidates):
        name = f"candidate_{i}"
        function = build_prim_func(
            candidate.problem, candidate.signature, candidate.selection, target
        )
        assert name not in functions, f"two candidates are called {name}"
        functions[name] = function.with_attr("global_symbol", name)
    module = tvm.compile(tvm.IRModule(functions), target=target)
    return [
        Kernel(
            candidate,
            module[f"candidate_{i}"],
            workspace_size(candidate.problem, candidate.selection, {}),
        )
        for i, candidate in enumerate(candidates)
    ]
