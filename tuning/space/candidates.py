"""Candidates: ways to compute a problem, and the order of their arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from tvm import tirx
from tvm.target import Target

from tvm_scatter.errors import ScatterError
from tvm_scatter.lowering.emission import build_prim_func, workspace_size
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.signature import Signature
from tvm_scatter.problem.sizes import Sizes
from tvm_scatter.selection.cost import Coefficients
from tvm_scatter.selection.strategy import Branch, OpStrategy, Selection, strategy_for
from tvm_scatter.tuning.operands.inputs import index_sizes, update_size


@dataclass(frozen=True)
class Candidate:
    """An implementation with the values of all its knobs."""

    implementation: str
    config: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def of(implementation: str, config: Mapping[str, int]) -> Candidate:
        """The candidate for an implementation's name and a mapping of its knobs."""
        return Candidate(implementation, tuple(sorted(config.items())))

    @property
    def way(self) -> tuple[str, dict[str, int]]:
        """Implementation and knobs."""
        return self.implementation, dict(self.config)

    def __str__(self) -> str:
        knobs = ", ".join(f"{name}={value}" for name, value in self.config)
        return f"{self.implementation} ({knobs})" if knobs else self.implementation


def need_strategy(target: Target) -> OpStrategy:
    """The strategy for a target.

    Raises
    ------
    ScatterError
        If there is none to tune.
    """
    strategy = strategy_for(target.kind.name)
    if strategy is None:
        raise ScatterError(f"tuning: there is no strategy for target {target.kind.name}.")
    return strategy


def candidates(problem: ScatterProblem, target: Target) -> Iterator[Candidate]:
    """The whole space of a problem: implementations in order, each with its defaults first."""
    for name, implementation in need_strategy(target).applicable(problem, target).items():
        knobs = implementation.knobs(problem, target)
        for values in product(*knobs.values()):
            yield Candidate.of(name, dict(zip(knobs, values, strict=True)))


def default_candidate(
    problem: ScatterProblem, target: Target, fitted: Coefficients | None = None
) -> Candidate:
    """The choice for a static problem without a record, by coefficients in force or by others."""
    selection = need_strategy(target).default(problem, target, fitted=fitted)
    return Candidate.of(selection.implementation.name, selection.config)


def selection_of(candidate: Candidate, problem: ScatterProblem, target: Target) -> Selection:
    """The selection that computes a problem by a candidate.

    Raises
    ------
    ScatterError
        If the candidate cannot compute the problem.
    """
    strategy = need_strategy(target)
    implementation = strategy.implementations.get(candidate.implementation)
    if implementation is None:
        raise ScatterError(f"tuning: there is no implementation {candidate.implementation!r}.")
    refusal = strategy.refusal(implementation, problem, target)
    if refusal is not None:
        raise ScatterError(f"tuning: {candidate} cannot compute [{problem}]: {refusal}.")
    config = implementation.config(problem, target, dict(candidate.config))
    return Selection((Branch(implementation, config),), "forced", "being measured")


def flat_signature(problem: ScatterProblem) -> Signature:
    """One-dimensional operands for a static problem."""
    return Signature(
        "tuning",
        (int(Sizes.of(problem).data_size),),
        tuple((size,) for size in index_sizes(problem)),
        (update_size(problem),),
    )


@dataclass(frozen=True)
class Built:
    """A candidate's function: its name in a module, and the workspace that it takes."""

    candidate: Candidate
    function: str
    workspace_bytes: int | None


def prim_func(
    candidate: Candidate, problem: ScatterProblem, target: Target, name: str
) -> tuple[tirx.PrimFunc, Built]:
    """A candidate's function under a name of its own."""
    selection = selection_of(candidate, problem, target)
    function = build_prim_func(problem, flat_signature(problem), selection, target)
    workspace: Any = workspace_size(problem, selection, {}, target)
    return function.with_attr("global_symbol", name), Built(candidate, name, workspace)
