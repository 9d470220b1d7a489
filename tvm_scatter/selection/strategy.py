"""OpStrategy: the ordered table of implementations, and the one place that chooses among them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tvm_scatter.emit.index_check import DeviceCheck
from tvm_scatter.emit.operands import Operands
from tvm_scatter.errors import ScatterError
from tvm_scatter.options import Options, current_options
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes

from .backend import Backend, backend_for, register_backend
from .calibrated import machine_for
from .cost import (
    Coefficients,
    Costs,
    Predict,
    Prediction,
    coefficients,
    margin_below_a_record,
    ratio_error,
)
from .machine import Machine
from .measuring import settled
from .records import TunedRecord, Way, completed, tuned_records
from .rounding import decided_by_sizes, for_few_updates, has_many_updates, rounds_each
from .shipped_log import shipped_device, shipped_records
from .undominated import for_sizes_taken, undominated
from .work import Terms, Work

Config = Mapping[str, int]
#: Of those that are predicted to be about equally fast, so many are measured if that is asked for.
_MOST_MEASURED = 3
#: How many times longer than the fastest record the default's may take and count as being as fast:
#: two runs differ by more, and the default was fitted to thousands of other measurements.
_TIE = 1.015
#: Why one is not chosen that may be forced.
_ROUNDS = "it rounds to 16 bits after each addition, and others round once"


class Implementation(ABC):
    """One way to compute a scatter. Subclass it in a file of its own and add it to the table.

    Attributes
    ----------
    name : str
        The name by which callers force it, and which records store.
    deterministic : bool
        Whether it gives equal bits on every run, for every problem that it takes.
    capturable : bool
        Whether a CUDA graph can capture it: it neither synchronises nor allocates, and the host
        branches on no data.
    accumulates_wide : bool
        Whether it sums 16-bit floats in 32 bits and rounds once
        (:func:`~tvm_scatter.problem.reductions.sum_error_bound`). Otherwise it rounds after every
        addition, and is not chosen where a place may have many updates.
    fuses : bool
        Whether it can compute updates where it reads them. Each update should be read once.
    order_cost : float
        What it certainly saves where the order of the updates is given, as a part of what a radix
        sort costs. 0 if it makes no order of its own.
    fills : bool
        Whether it writes every row of the output, and so can begin with a number in place of data.
    finishes : bool
        Whether it writes each element of the output once, and can compute what follows there.
    takes_empty : bool
        Whether it computes problems whose output has no elements.
    takes_ordering : bool
        Whether it computes problems whose updates are ordered already, and no others.
    takes_order_alone : bool
        Whether it reads no index where it is given an order, or none if the problem says that the
        order is given alone.
    takes_all_sizes : bool
        Whether it takes whatever sizes a problem has at run time. If not, there is
        :meth:`takes_sizes`.
    takes_softmax : bool
        Whether it can weight each update by a softmax among those of its destination.
    needs_softmax : bool
        Whether it computes problems that ask for that, and no others.
    summary : str
        One line for readers: the problems that it is best for.
    """

    name: str
    deterministic: bool = False
    accumulates_wide: bool = False
    capturable: bool = True
    fuses: bool = False
    order_cost: float = 0.0
    fills: bool = False
    finishes: bool = False
    takes_empty: bool = True
    takes_ordering: bool = False
    takes_order_alone: bool = False
    takes_all_sizes: bool = True
    takes_softmax: bool = False
    needs_softmax: bool = False
    summary: str = ""

    @property
    def takes_plain(self) -> bool:
        """Whether it computes scatters that are given an index and updates, and nothing else."""
        return not (self.takes_ordering or self.needs_softmax)

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        """Why this implementation cannot compute the problem on the target; ``None`` if it can."""
        return None

    def given(self, problem: ScatterProblem) -> ScatterProblem:
        """The problem as this implementation gets it.

        The backend does what it leaves to launches around its own: it fills the output before, and
        computes what follows afterwards.
        """
        if problem.fill and not self.fills:
            problem = replace(problem, fill="", in_place=True)
        if problem.epilogue and not self.finishes:
            problem = replace(problem, epilogue="")
        return problem

    def takes_sizes(self, sizes: Sizes) -> Any:
        """Whether it takes sizes that are known at run time only: a bool, or a condition."""
        return True

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        """The tuning parameters ("knobs"): for each its valid values, the default first."""
        return {}

    def cost(self, work: Work, config: Config) -> Terms | None:
        """What the problem costs: microseconds by what they are spent on.

        Each is a simple estimate from the sizes of the work and the rates of its machine. How far
        it is off is fitted (:mod:`tvm_scatter.selection.cost`); a term that was never fitted counts
        as it is. ``None``, the default, says that nothing is known.

        Parameters
        ----------
        work : Work
            Its sizes are numbers, or expressions if they are known at run time only. So compare
            and choose by :mod:`tvm_scatter.selection.arithmetic`, not by ``if``.
        """
        return None

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        """Bytes of scratch memory: an ``int``, or an expression if ``sizes`` holds expressions."""
        return 0

    @abstractmethod
    def emit(self, operands: Operands, config: Config) -> None:
        """Emit TIR statements that compute ``operands.problem`` into the current function."""

    def config(self, problem: ScatterProblem, target: Any, chosen: Config | None = None) -> Config:
        """The value of each knob: from ``chosen``, else the default.

        Raises
        ------
        ScatterError
            If ``chosen`` names a knob or a value that this problem does not have.
        """
        knobs = self.knobs(self.given(problem), target)
        config = {name: values[0] for name, values in knobs.items()}
        for name, value in (chosen or {}).items():
            if name not in knobs or value not in knobs[name]:
                offered = {knob: list(values) for knob, values in knobs.items()}
                raise ScatterError(
                    f"scatter: implementation {self.name!r} has no knob {name}={value} for this "
                    f"problem; it offers {offered}."
                )
            config[name] = value
        return config


@dataclass(frozen=True)
class Branch:
    """One alternative of a selection.

    Attributes
    ----------
    predict : callable, optional
        Returns for sizes, numbers or expressions, what it is predicted to take. Of several
        branches the one that takes least is used, of equals the first.
    """

    implementation: Implementation
    config: Config
    predict: Predict | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Selection:
    """The implementations that the strategy chose, and why.

    Attributes
    ----------
    branches : tuple of Branch
        A static problem has exactly one. Of several, sizes decide at run time.
    source : str
        ``"forced"``, ``"tuned"`` or ``"default"``.
    reason : str
        One sentence.
    refusals : dict of str to (str or None)
        For each implementation, why it could not have been chosen, or ``None`` if it could.
    predictions : dict of str to Prediction
        What implementations are predicted to take, the fastest first; for a default only.
    """

    branches: tuple[Branch, ...]
    source: str
    reason: str
    refusals: Mapping[str, str | None] = field(default_factory=dict)
    predictions: Mapping[str, Prediction] = field(default_factory=dict)

    @property
    def alternatives(self) -> dict[str, str | None]:
        """The refusals of the implementations that were not chosen."""
        chosen = [branch.implementation.name for branch in self.branches]
        return {name: refusal for name, refusal in self.refusals.items() if name not in chosen}

    @property
    def implementation(self) -> Implementation:
        """The implementation of the last branch: the only one for a static problem."""
        return self.branches[-1].implementation

    @property
    def config(self) -> Config:
        """The knobs of the last branch."""
        return self.branches[-1].config


class OpStrategy:
    """The implementations of scatter for one target kind, best first.

    Parameters
    ----------
    backend : Backend or str
        The kind of target the table is for, or its name.
    """

    def __init__(self, backend: Backend | str) -> None:
        self.backend = backend if isinstance(backend, Backend) else backend_for(backend)
        self._entries: list[tuple[int, Implementation]] = []

    def add_implementation(self, implementation: Implementation, plevel: int = 10) -> None:
        """Add an implementation; a higher ``plevel`` is tried first by default.

        The implementation with the lowest level must be able to compute every problem.

        Raises
        ------
        ScatterError
            If an implementation of that name exists already.
        """
        if implementation.name in self.implementations:
            raise ScatterError(
                f"OpStrategy({self.target_kind}): implementation {implementation.name!r} is there "
                "already."
            )
        self._entries.append((plevel, implementation))
        self._entries.sort(key=lambda entry: -entry[0])

    @property
    def implementations(self) -> dict[str, Implementation]:
        """The implementations by name, in the order in which they are tried."""
        return {implementation.name: implementation for _, implementation in self._entries}

    @property
    def target_kind(self) -> str:
        """The kind of target the table is for."""
        return self.backend.kind

    @property
    def device_check(self) -> DeviceCheck | None:
        """How to check indices on the device; ``None`` if the host can read them."""
        return self.backend.device_check

    def refusal(
        self,
        implementation: Implementation,
        problem: ScatterProblem,
        target: Any,
        options: Options | None = None,
    ) -> str | None:
        """Why ``implementation`` must not compute ``problem``, or ``None``; options count."""
        if problem.fused and not implementation.fuses:
            return "it reads updates from memory, and these are computed where they are read"
        widens = problem.fused and self.backend.widens(problem.data_dtype)
        if widens and not implementation.accumulates_wide:
            return "it accumulates in bfloat16, and these updates are computed in float32"
        if problem.softmax and not implementation.takes_softmax:
            return "it weights no updates by a softmax"
        if implementation.needs_softmax and not problem.softmax:
            return "there is no softmax to weight updates by"
        if problem.fill and not (implementation.fills or self.backend.fill):
            return "it reads the data, which are not in memory"
        if problem.epilogue and not implementation.finishes:
            if self.backend.finish is None:
                return "it does not compute what follows"
            if problem.epilogue != problem.data_dtype:
                return f"it accumulates in the output, which is of type {problem.epilogue}"
        if problem.ordered and not implementation.takes_ordering:
            return "it makes an order of its own, and one is given"
        if problem.order_alone and not implementation.takes_order_alone:
            return "it reads the index, and only an order of the updates is given"
        if implementation.takes_ordering and not problem.ordered:
            return "no order of the updates is given"
        if problem.is_empty and not implementation.takes_empty:
            return "the output has no elements"
        captures = self.backend.captures_graphs and (options or current_options()).captures
        if problem.needs_order and not implementation.deterministic:
            return "it is not deterministic and a deterministic result is asked for"
        if captures and not implementation.capturable:
            return "no CUDA graph can hold it and one is asked for"
        return implementation.refusal(implementation.given(problem), target)

    def refusals(
        self, problem: ScatterProblem, target: Any, options: Options | None = None
    ) -> dict[str, str | None]:
        """For each implementation, in order, why it must not compute the problem, or ``None``."""
        return {
            name: self.refusal(implementation, problem, target, options)
            for name, implementation in self.implementations.items()
        }

    def applicable(
        self, problem: ScatterProblem, target: Any, options: Options | None = None
    ) -> dict[str, Implementation]:
        """The implementations that may compute the problem, in order."""
        refusals = self.refusals(problem, target, options)
        return {name: each for name, each in self.implementations.items() if not refusals[name]}

    def select(
        self, problem: ScatterProblem, target: Any, options: Options | None = None
    ) -> Selection:
        """Choose: what the caller forces, else the fastest tuned record, else the least cost.

        Records of the current database take precedence over those of the shipped log. Where the
        default is unsure, the option ``measure`` settles it.

        Raises
        ------
        ScatterError
            If the caller forces an implementation that is unknown or cannot take the problem.
        """
        options = options or current_options()
        refusals = self.refusals(problem, target, options)
        if options.implementation is not None:
            way = options.implementation, dict(options.knobs)
            branch = self.forced(way, problem, target, options)
            return Selection((branch,), "forced", "asked for by the caller", refusals)
        log, record = self._recorded(problem, target, options)
        known = record and self._of_stored(record.way, problem, target, options)
        if record and known:
            reason = f"fastest of the {log}, {record.microseconds:.1f} us"
            return Selection((known,), "tuned", reason, refusals)
        default = self.default(problem, target, options=options)
        return self._measured(default, problem, target, options) if options.measure else default

    def _recorded(
        self, problem: ScatterProblem, target: Any, options: Options
    ) -> tuple[str, TunedRecord | None]:
        """The measured candidate that counts most, if any does, and the log that has it."""

        def usable(way: Way) -> bool:
            known = self._of_stored(way, problem, target, options)
            return known is not None and not self._rounds_often(known.implementation, problem)

        # What is best for stored updates is the best guess for computed ones.
        spellings = [problem.measured]
        if problem.in_place:
            # Without a measurement in place, the winner of the same problem with a copy is the best
            # guess.
            spellings.append(replace(problem.measured, in_place=False))
        # An index from the end takes one instruction more.
        spellings += [replace(each, wrap_negative=not each.wrap_negative) for each in spellings]
        for each in spellings:
            tuned = tuned_records(each, target, usable)
            if tuned:
                return "tuned records", tuned[0]
        for each in spellings if options.shipped_log else ():
            known = shipped_records(each, target, usable)
            if known:
                best = self._settled(known, each, problem, target, options)
                return "log shipped for this architecture", best
        return "", None

    def _measured(
        self, default: Selection, problem: ScatterProblem, target: Any, options: Options
    ) -> Selection:
        """The fastest on this machine's device of those that are predicted to be about equal."""
        least = min((each.microseconds for each in default.predictions.values()), default=0.0)
        equal = [
            (name, self.implementations[name].config(problem, target))
            for name, each in default.predictions.items()
            if each.microseconds <= least * ratio_error(self.target_kind)
        ]
        posed = problem.measured
        ways = [way for way in equal[:_MOST_MEASURED] if self.branch(way, posed, target)]
        record = settled(posed, target, ways) if len(ways) > 1 else None
        if record is None:
            return default
        # It is one of those that the default was chosen from.
        branch = self.forced(record.way, problem, target, options)
        reason = f"fastest of the {len(ways)} best predicted, measured here: "
        reason += f"{record.microseconds:.1f} us"
        return replace(default, branches=(branch,), source="tuned", reason=reason)

    def _settled(
        self,
        records: Sequence[TunedRecord],
        measured: ScatterProblem,
        problem: ScatterProblem,
        target: Any,
        options: Options,
    ) -> TunedRecord | None:
        """The record of a shipped log to choose by, which may be older than the default.

        ``None`` where the log cannot say what is better: it has no record of the default's
        implementation, which is predicted to take clearly less than what it has, or that was the
        fastest of the log, but with other knobs than the default's now. It is the default's where
        that is as fast as any.

        Parameters
        ----------
        records : sequence of TunedRecord
            Those that may be chosen, the fastest first.
        measured : ScatterProblem
            The problem as the log has it.
        """
        fastest, default = records[0], self.default(problem, target, options=options)
        if len(default.branches) > 1:
            return fastest
        name, config = default.implementation.name, dict(default.config)
        knobs = default.implementation.knobs(measured, target)
        own = [each for each in records if each.implementation == name]
        if own:
            same = [each for each in own if completed(each.config, knobs) == config]
            if not same:
                return None if fastest is own[0] else fastest
            return same[0] if same[0].microseconds <= _TIE * fastest.microseconds else fastest
        # The log's times are those of its own machine, which may be faster than this one.
        machine = self.backend.named_machine(shipped_device(target), target)
        there = self.default(measured, target, options=options, machine=machine)
        predicted = there.predictions.get(name)
        margin = margin_below_a_record(self.target_kind)
        is_less = predicted and predicted.microseconds * margin < fastest.microseconds
        return None if is_less else fastest

    def default(
        self,
        problem: ScatterProblem,
        target: Any,
        options: Options | None = None,
        fitted: Coefficients | None = None,
        machine: Machine | None = None,
    ) -> Selection:
        """Choose by cost; by the level of implementations that say nothing of theirs.

        Such an implementation is chosen if its level is above that of all others.

        Parameters
        ----------
        fitted : mapping, optional
            Coefficients of the costs, in place of those of the target kind.
        machine : Machine, optional
            What to predict for, in place of the target's.
        """
        machine = machine or machine_for(self.backend, target)
        costs = Costs(problem, machine, fitted or coefficients(self.target_kind))
        refusals = self.refusals(problem, target, options)
        possible = {}
        for name, implementation in self.implementations.items():
            if refusals[name] is None:
                config = implementation.config(problem, target)
                possible[name] = Branch(implementation, config, costs.of(implementation, config))
        if not possible:
            raise self._nothing_takes(problem, refusals)
        branches = self._rounded_seldom(possible, problem)
        refusals |= dict.fromkeys(possible.keys() - branches.keys(), _ROUNDS)
        ways = {name: each.predict for name, each in branches.items() if each.predict}
        predictions: dict[str, Prediction] = {}
        chosen = list(branches)[:1]
        if chosen[0] not in ways:
            reason = "its level is the highest, and it does not say what it costs"
        elif problem.is_static:
            sizes = Sizes.of(problem)
            known = {name: predict(sizes) for name, predict in ways.items()}
            ranked = sorted(known, key=lambda name: known[name].microseconds)
            chosen, predictions = ranked[:1], {name: known[name] for name in ranked}
            reason = f"predicted {known[ranked[0]]}"
        else:
            partial = [name for name in ways if not self.implementations[name].takes_all_sizes]
            for name in partial:
                ways[name] = for_sizes_taken(ways[name], self.implementations[name].takes_sizes)
                branches = {**branches, name: replace(branches[name], predict=ways[name])}
            chosen = undominated(problem, ways, partial)
            reason = "predicted to be the fastest"
            reason += "; the sizes decide at run time" if len(chosen) > 1 else ""
        found = tuple(branches[name] for name in chosen)
        return Selection(found, "default", reason, refusals, predictions)

    def _rounds_often(self, implementation: Implementation, problem: ScatterProblem) -> bool:
        """Whether it is not chosen because it would round sums of 16 bits too often."""
        many = self.backend.rounds_once or has_many_updates(problem)
        return many and rounds_each(implementation, problem)

    def _rounded_seldom(
        self, branches: Mapping[str, Branch], problem: ScatterProblem
    ) -> Mapping[str, Branch]:
        """Without those that would round sums of 16 bits too often, where there are others."""
        if all(rounds_each(branch.implementation, problem) for branch in branches.values()):
            return branches
        found = {}
        for name, branch in branches.items():
            if self._rounds_often(branch.implementation, problem):
                continue
            rounds = rounds_each(branch.implementation, problem)
            if rounds and decided_by_sizes(problem) and branch.predict:
                branch = replace(branch, predict=for_few_updates(branch.predict))
            found[name] = branch
        return found

    def forced(
        self, way: Way, problem: ScatterProblem, target: Any, options: Options | None = None
    ) -> Branch:
        """The branch for an implementation's name and knobs.

        Raises
        ------
        ScatterError
            If the name or a knob is unknown, or the implementation must not compute this problem.
        """
        name, config = way
        implementation = self.implementations.get(name)
        if implementation is None:
            raise ScatterError(
                f"scatter: unknown implementation {name!r} for {self.target_kind}; it must be one "
                f"of {', '.join(self.implementations)}."
            )
        refusal = self.refusal(implementation, problem, target, options)
        if refusal is not None:
            raise ScatterError(
                f"scatter: implementation {name!r} cannot be forced on [{problem}]: {refusal}."
            )
        return Branch(implementation, implementation.config(problem, target, config))

    def branch(
        self, way: Way, problem: ScatterProblem, target: Any, options: Options | None = None
    ) -> Branch | None:
        """The same of a record, which may be of another version of this package or problem.

        ``None`` if it does not fit.
        """
        try:
            return self.forced(way, problem, target, options)
        except ScatterError:
            return None

    def _of_stored(
        self, way: Way, problem: ScatterProblem, target: Any, options: Options
    ) -> Branch | None:
        """The branch of a record, which is of stored updates; ``None`` if it does not fit.

        Where computed updates are not offered its knobs, it says which implementation to take.
        """
        known = self.branch(way, problem, target, options)
        if known is None and problem.fused:
            known = self.branch((way[0], {}), problem, target, options)
        return known

    def _nothing_takes(
        self, problem: ScatterProblem, refusals: Mapping[str, str | None]
    ) -> ScatterError:
        said = "; ".join(f"{name}: {refusal}" for name, refusal in refusals.items())
        return ScatterError(
            f"scatter: no implementation for {self.target_kind} takes [{problem}]; {said}."
        )


_STRATEGIES: dict[str, OpStrategy] = {}


def strategy_for(target_kind: str) -> OpStrategy | None:
    """The strategy for a target kind, or ``None`` if TVM's own operators are used there."""
    return _STRATEGIES.get(target_kind)


def register_strategy(strategy: OpStrategy) -> OpStrategy:
    """Register the strategy for its target kind. It replaces an earlier one for the kind."""
    register_backend(strategy.backend)
    _STRATEGIES[strategy.target_kind] = strategy
    return strategy
