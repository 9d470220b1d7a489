"""Explains which implementation computes each scatter of a module, how it reads, and why."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm.ir import IRModule

from tvm_scatter.lowering.batched import describe, is_batch
from tvm_scatter.lowering.plan import Plan, Way, plan
from tvm_scatter.lowering.plan_read import plan_read
from tvm_scatter.lowering.reads import is_read
from tvm_scatter.lowering.target import target_of, target_of_call
from tvm_scatter.ops.arguments import need_module
from tvm_scatter.ops.scatter_call import is_scatter, operator_name
from tvm_scatter.passes.analysis.named_values import named_values
from tvm_scatter.passes.own_lines import note_of_lines
from tvm_scatter.passes.report import Note, collected_notes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.schedules.gpu.planned_kernels import planned_kernels
from tvm_scatter.schedules.gpu.planned_read import form_of_plan
from tvm_scatter.schedules.gpu.planned_rows import planned_row_form
from tvm_scatter.selection.strategy import Branch, Selection
from tvm_scatter.selection.targets import to_target

from .options import Options, current_options
from .passes import passes

#: The name in :func:`summary` for scatters that this package does not compute.
STOCK = "TVM's own"
#: Implementations besides the chosen one whose predicted time is printed.
_SHOWN = 2


@dataclass(frozen=True)
class Choice:
    """A chosen implementation.

    Attributes
    ----------
    implementation : str
        Its name.
    knobs : dict of str to int
        The values of all its knobs.
    """

    implementation: str
    knobs: Mapping[str, int]

    def __str__(self) -> str:
        knobs = ", ".join(f"{name}={value}" for name, value in self.knobs.items())
        return f"{self.implementation} ({knobs})" if knobs else self.implementation


@dataclass(frozen=True)
class Explanation:
    """How one scatter of a module will be computed.

    Attributes
    ----------
    where : str
        The function and the variable that the result is bound to.
    operator : str
        The name of the operator.
    target : str
        The kind of target that the call is compiled for.
    problem : ScatterProblem or None
        The problem that the call was lowered to; ``None`` if it was not lowered, for example if
        TVM's own operator computes it.
    symbols : dict of str to str
        The expression in the module for each symbolic size of the problem.
    choices : tuple of Choice
        The one that is predicted to be the fastest is used. There are several only if symbolic
        sizes decide at run time, and none if TVM's own operator is used or nothing is written.
    source : str
        Where the choice comes from: ``"forced"``, ``"tuned"``, ``"default"`` or ``"none"``.
    reason : str
        Why, in one clause.
    alternatives : dict of str to (str or None)
        For each other implementation, why it cannot be used; ``None`` if it can.
    index : str
        What is known of its indices, and why; empty if nothing is.
    predictions : dict of str to str
        What implementations are predicted to take, the fastest first, and what of. Empty if the
        choice is not by prediction.
    """

    where: str
    operator: str
    target: str
    problem: ScatterProblem | None
    symbols: Mapping[str, str]
    choices: tuple[Choice, ...]
    source: str
    reason: str
    alternatives: Mapping[str, str | None] = field(default_factory=dict)
    predictions: Mapping[str, str] = field(default_factory=dict)
    index: str = ""

    @property
    def implementation(self) -> str | None:
        """The name of the chosen implementation, of several the last; ``None`` if there is none."""
        return self.choices[-1].implementation if self.choices else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data that ``json`` takes."""
        return {
            "where": self.where,
            "operator": self.operator,
            "target": self.target,
            "problem": None if self.problem is None else str(self.problem),
            "symbols": dict(self.symbols),
            "choices": [
                {
                    "implementation": choice.implementation,
                    "knobs": dict(choice.knobs),
                }
                for choice in self.choices
            ],
            "source": self.source,
            "reason": self.reason,
            "alternatives": dict(self.alternatives),
            "predictions": dict(self.predictions),
            "index": self.index,
        }

    @property
    def problem_text(self) -> str:
        """The problem with the module's names for symbolic sizes; empty if there is no problem."""
        if self.problem is None:
            return ""
        return re.sub(r"\bn\d+\b", lambda n: self.symbols.get(n[0], n[0]), str(self.problem))

    @property
    def because(self) -> str:
        """The source of the choice and the reason."""
        return f"{self.source}: {self.reason}" if self.choices else self.reason

    def lines(self) -> list[tuple[str, str]]:
        """The lines to print, each as a label and a text."""
        chosen = " or ".join(map(str, self.choices)) or "none of this package"
        lines = [("chosen", chosen), ("because", self.because)]
        if self.problem is not None:
            lines.insert(0, ("problem", self.problem_text))
        if self.index:
            lines.insert(-2, ("index", self.index))
        applicable = [name for name, refusal in self.alternatives.items() if refusal is None]
        ranked = [name for name in self.predictions if name in applicable][:_SHOWN]
        lines += [("next", f"{name}, predicted {self.predictions[name]}") for name in ranked]
        if applicable:
            lines.append(("possible", ", ".join(applicable)))
        for name, refusal in self.alternatives.items():
            if refusal is not None:
                lines.append(("refused", f"{name}: {refusal}"))
        return lines

    def __str__(self) -> str:
        head = f"{self.where} = {self.operator} [{self.target}]"
        return "\n".join([head, *(f"  {label:9} {text}" for label, text in self.lines())])


class Explanations(list[Explanation]):
    """A list of :class:`Explanation` that prints as text.

    Attributes
    ----------
    notes : list of Note
        The rewrites of the passes that run before the strategy.
    reads : list of Note
        The forms of the reads by index that no scatter computes, on GPUs, and of the reductions
        that compute the rows that they read. What TVM fuses with a read may still change its form.
    kernels : list of Note
        What else is computed by one kernel on GPUs, and the forms of products.
    lines : list of Note
        The forms of sorts, selections and running sums, or why TVM computes them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[Note] = []
        self.reads: list[Note] = []
        self.kernels: list[Note] = []
        self.lines: list[Note] = []

    @property
    def beside(self) -> list[Note]:
        """What is computed beside scatters, and how."""
        return [*self.reads, *self.kernels, *self.lines]

    def to_dict(self) -> list[dict[str, Any]]:
        """Plain data that ``json`` takes."""
        return [explanation.to_dict() for explanation in self]

    def __str__(self) -> str:
        return "\n".join(map(str, [*self.notes, *self, *self.beside])) or "no scatter"


def explain(mod: IRModule, target: Any = None) -> Explanations:
    """Explain how each scatter of a module will be computed, without compiling the module.

    The passes and the plans are those of ``tvm.compile``, with the current options and tuning
    database.

    Parameters
    ----------
    mod : tvm.IRModule
        A module of Relax functions, as an importer makes it.
    target : tvm.target.Target or str, optional
        The target to compile for. The default is the current target, or else llvm.

    Returns
    -------
    explanations : list of Explanation
        One for each scatter, in the order of the program. ``print`` shows them.

    Raises
    ------
    ScatterError
        If ``mod`` is not a module, if the target is unknown, or if a scatter is malformed.
    """
    need_module("explain", mod)
    found, options = Explanations(), current_options()
    with nullcontext() if target is None else to_target(target):
        found.notes, mod = _rewritten(mod, options)
        found += [_explanation(where, each) for where, each in _plans(mod, options)]
        found.reads = [*_reads(mod, options), *_row_sums(mod)]
        found.kernels = planned_kernels(mod, options)
        noted = (note_of_lines(where, call) for where, call in named_values(mod))
        found.lines = [note for note in noted if note is not None]
    return found


def planned(mod: IRModule, target: Any = None) -> tuple[list[Note], list[tuple[str, Plan]]]:
    """Run the passes on a module and plan the scatters of the result.

    Returns
    -------
    notes : list of Note
        The rewrites of the passes.
    plans : list of (str, Plan)
        In the order of the program. The text names the function and the variable of the result.
    """
    options = current_options()
    with nullcontext() if target is None else to_target(target):
        notes, mod = _rewritten(mod, options)
        return notes, _plans(mod, options)


def _rewritten(mod: IRModule, options: Options) -> tuple[list[Note], IRModule]:
    """Run the passes on a module."""
    with collected_notes() as notes:
        mod = tvm.transform.Sequential(passes(options))(mod)
    return notes, mod


def _plans(mod: IRModule, options: Options) -> list[tuple[str, Plan]]:
    """Plan the scatters of a module."""
    return [
        (where, plan(call, target_of_call(call), options))
        for where, call in named_values(mod)
        if is_scatter(call) or is_batch(call)
    ]


def _reads(mod: IRModule, options: Options) -> Iterator[Note]:
    """The forms of the reads by index that this package schedules."""
    for where, call in named_values(mod):
        planned_read = None
        if is_read(call):
            planned_read = plan_read(call, target_of(call.args[0]), options)
        form = None if planned_read is None else form_of_plan(planned_read)
        if planned_read is not None and form is not None:
            operator = planned_read.read.check.operator
            yield Note("gather", where, f"= {operator}, {form}, because {form.reason}")


def _row_sums(mod: IRModule) -> Iterator[Note]:
    """The forms of the reductions that compute the rows that they read by index."""
    for where, call in named_values(mod):
        form = planned_row_form(mod, call)
        if form is not None:
            yield Note("row_sums", where, f"= {form}, because {form.reason}")


def _explanation(where: str, plan: Plan) -> Explanation:
    call, selection = plan.call, plan.selection
    choices: tuple[Choice, ...] = ()
    if plan.way is Way.COPY:
        choices = (Choice("copy_ranges", {}),)
    elif selection is not None:
        choices = tuple(map(_choice, selection.branches))
    source = "default" if choices else "none"
    return Explanation(
        where=where,
        operator=describe(call) if is_batch(call) else operator_name(call),
        target=plan.target.kind.name,
        problem=plan.problem,
        symbols={name: str(size) for name, size in plan.symbols.items()},
        choices=choices,
        source=source if selection is None else selection.source,
        reason=plan.reason,
        alternatives={} if selection is None else dict(selection.alternatives),
        predictions={} if selection is None else _predictions(selection),
        index=plan.lowered[0].known if plan.lowered else "",
    )


def _predictions(selection: Selection) -> dict[str, str]:
    return {name: str(found) for name, found in selection.predictions.items()}


def _choice(branch: Branch) -> Choice:
    return Choice(branch.implementation.name, dict(branch.config))


def summary(explanations: Iterable[Explanation]) -> dict[str, int]:
    """The number of scatters for each implementation."""
    counts: dict[str, int] = {}
    for explanation in explanations:
        name = explanation.implementation or STOCK
        counts[name] = counts.get(name, 0) + 1
    return counts
