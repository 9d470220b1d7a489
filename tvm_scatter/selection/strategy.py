"""OpStrategy: the ordered table of implementations, and the one place that chooses among them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
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
    prediction_error,
    ratio_error,
)
from .measuring import settled
from .records import TunedRecord, tuned_records
from .shipped_log import shipped_records
from .undominated import undominated
from .work import Terms, Work

Config = Mapping[str, int]
#: Of those that are predicted to be about equally fast, so many are measured if that is asked for.
_MOST_MEASURED = 3


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
        addition.
    fuses : bool
        Whether it can compute updates where it reads them. Each update should be read once.
    order_cost : float
        What it certainly saves where the order of the updates is given, as a part of what a radix
        sort costs. 0 if it makes no order of its own.
    fills : bool
        Whether it writes every row of the output, and so can begin with a number in place of data.
    finishes : bool
        Whether it writes each element of the output once, and can compute what follows there.
    takes_ordering : bool
        Whether it computes problems whose updates are ordered already, and no others.
    takes_softmax : bool
        Whether it can weight each update by a softmax among those of its destination.
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
    takes_ordering: bool = False
    takes_softmax: bool = False
    summary: str = ""

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
    alternatives : dict of str to (str or None)
        For each other implementation, why it could not have been chosen, or ``None`` if it could.
    predictions : dict of str to Prediction
        What implementations are predicted to take, the fastest first; for a default only.
    """

    branches: tuple[Branch, ...]
    source: str
    reason: str
    alternatives: Mapping[str, str | None] = field(default_factory=dict)
    predictions: Mapping[str, Prediction] = field(default_factory=dict)

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
        if problem.softmax and not implementation.takes_softmax:
            return "it weights no updates by a softmax"
        if problem.fill and not (implementation.fills or self.backend.fill):
            return "it reads the data, which are not in memory"
        if problem.epilogue and not implementation.finishes:
            if self.backend.finish is None:
                return "it does not compute what follows"
            if problem.epilogue != problem.data_dtype:
                return f"it accumulates in the output, which is of type {problem.epilogue}"
        if problem.ordered and not implementation.takes_ordering:
            return "it makes an order of its own, and one is given"
        if implementation.takes_ordering and not problem.ordered:
            return "no order of the updates is given"
        captures = self.backend.captures_graphs and (options or current_options()).captures
        if problem.needs_order and not implementation.deterministic:
            return "it is not deterministic and a deterministic result is asked for"
        if captures and not implementation.capturable:
            return "no CUDA graph can hold it and one is asked for"
        return implementation.refusal(implementation.given(problem), target)

    def applicable(
        self, problem: ScatterProblem, target: Any, options: Options | None = None
    ) -> dict[str, Implementation]:
        """The implementations that may compute the problem, in order."""
        return {
            name: implementation
            for name, implementation in self.implementations.items()
            if self.refusal(implementation, problem, target, options) is None
        }

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
        if options.implementation is not None:
            return self._forced(problem, target, options)
        # What is best for stored updates is the best guess for computed ones.
        spellings = [problem.measured]
        if problem.in_place:
            # Without a measurement in place, the winner of the same problem with a copy is the best
            # guess.
            spellings.append(replace(problem.measured, in_place=False))
        logs: dict[str, Iterator[TunedRecord]] = {
            "tuned records": chain.from_iterable(tuned_records(each, target) for each in spellings)
        }
        if options.shipped_log:
            logs["log shipped for this architecture"] = chain.from_iterable(
                self._settled(each, problem, target, options) for each in spellings
            )
        for log, records in logs.items():
            for record in records:
                branch = self.branch(record.implementation, record.config, problem, target, options)
                if branch is not None:
                    reason = f"fastest of the {log}, {record.microseconds:.1f} us"
                    return self._selection(problem, target, (branch,), "tuned", reason, options)
        default = self.default(problem, target, options=options)
        return self._measured(default, problem, target, options) if options.measure else default

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
        ways = [way for way in equal[:_MOST_MEASURED] if self.branch(*way, posed, target)]
        record = settled(posed, target, ways) if len(ways) > 1 else None
        if record is None:
            return default
        branch = self.branch(record.implementation, record.config, problem, target, options)
        assert branch is not None  # it is one of those that the default was chosen from
        reason = f"fastest of the {len(ways)} best predicted, measured here: "
        reason += f"{record.microseconds:.1f} us"
        found = self._selection(problem, target, (branch,), "tuned", reason, options)
        return replace(found, predictions=default.predictions)

    def _settled(
        self, measured: ScatterProblem, problem: ScatterProblem, target: Any, options: Options
    ) -> Sequence[TunedRecord]:
        """The records of a shipped log, which may be older than the default.

        None are returned where the log cannot say what is better: it has no record of the default's
        implementation, which is predicted to take clearly less than what it has, or that was the
        fastest of the log, but with other knobs than the default's now.

        Parameters
        ----------
        measured : ScatterProblem
            The problem as the log has it.
        """
        records = shipped_records(measured, target)
        if not records:
            return records
        default = self.default(problem, target, options=options)
        if len(default.branches) > 1:
            return records
        name, config = default.implementation.name, dict(default.config)
        own = [record for record in records if record.implementation == name]
        if not own:
            predicted = self.default(measured, target, options=options).predictions.get(name)
            error = prediction_error(self.target_kind)
            usable = (
                record.microseconds
                for record in records
                if self.branch(record.implementation, record.config, problem, target, options)
            )
            newer = predicted and predicted.microseconds * error < next(usable, 0.0)
            return () if newer else records
        if records[0].implementation != name:
            return records
        return records if any(dict(record.config) == config for record in own) else ()

    def default(
        self,
        problem: ScatterProblem,
        target: Any,
        options: Options | None = None,
        fitted: Coefficients | None = None,
    ) -> Selection:
        """Choose by cost; by the level of implementations that say nothing of theirs.

        Such an implementation is chosen if its level is above that of all others.

        Parameters
        ----------
        fitted : mapping, optional
            Coefficients of the costs, in place of those of the target kind.
        """
        applicable = self.applicable(problem, target, options)
        if not applicable:
            raise self._nothing_takes(problem, target, options)
        costs = Costs(
            problem, machine_for(self.backend, target), fitted or coefficients(self.target_kind)
        )
        branches = {
            name: self._branch(implementation, problem, target, costs)
            for name, implementation in applicable.items()
        }
        first = next(iter(branches.values()))
        if first.predict is None:
            reason = "its level is the highest, and it does not say what it costs"
            return self._selection(problem, target, (first,), "default", reason, options)
        ways = {name: each.predict for name, each in branches.items() if each.predict}
        if not problem.is_static:
            chosen = [branches[name] for name in undominated(problem, ways)]
            reason = "predicted to be the fastest"
            return self._selection(problem, target, chosen, "default", reason, options)
        sizes = Sizes.of(problem)
        ranked = sorted(
            ((name, predict(sizes)) for name, predict in ways.items()),
            key=lambda each: each[1].microseconds,
        )
        name, fastest = ranked[0]
        reason = f"predicted {fastest}"
        selection = self._selection(problem, target, (branches[name],), "default", reason, options)
        return replace(selection, predictions=dict(ranked))

    def _branch(
        self, implementation: Implementation, problem: ScatterProblem, target: Any, costs: Costs
    ) -> Branch:
        config = implementation.config(problem, target)
        return Branch(implementation, config, costs.of(implementation, config))

    def branch(
        self,
        name: str,
        config: Config,
        problem: ScatterProblem,
        target: Any,
        options: Options | None = None,
    ) -> Branch | None:
        """The branch for an implementation's name and knobs, or ``None`` if they do not fit.

        They may come from a record of another version of this package or of another problem: the
        name or a knob is unknown, or the implementation must not compute this problem.
        """
        implementation = self.implementations.get(name)
        if implementation is None:
            return None
        if self.refusal(implementation, problem, target, options) is not None:
            return None
        knobs = implementation.knobs(implementation.given(problem), target)
        if _valid(config, knobs) != dict(config):
            return None
        return Branch(implementation, implementation.config(problem, target, config))

    def _forced(self, problem: ScatterProblem, target: Any, options: Options) -> Selection:
        name = options.implementation
        implementation = self.implementations.get(name or "")
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
        config = implementation.config(problem, target, dict(options.knobs))
        branch = Branch(implementation, config)
        reason = "asked for by the caller"
        return self._selection(problem, target, (branch,), "forced", reason, options)

    def _nothing_takes(
        self, problem: ScatterProblem, target: Any, options: Options | None
    ) -> ScatterError:
        refusals = "; ".join(
            f"{name}: {self.refusal(implementation, problem, target, options)}"
            for name, implementation in self.implementations.items()
        )
        return ScatterError(
            f"scatter: no implementation for {self.target_kind} takes [{problem}]; {refusals}."
        )

    def _selection(
        self,
        problem: ScatterProblem,
        target: Any,
        branches: Sequence[Branch],
        source: str,
        reason: str,
        options: Options | None,
    ) -> Selection:
        branches = list(branches)
        if not problem.is_static:
            reason += "; the sizes decide at run time" if len(branches) > 1 else ""
        chosen = {branch.implementation.name for branch in branches}
        alternatives = {
            name: self.refusal(implementation, problem, target, options)
            for name, implementation in self.implementations.items()
            if name not in chosen
        }
        return Selection(tuple(branches), source, reason, alternatives)


def _valid(config: Config, knobs: Mapping[str, Sequence[int]]) -> Config:
    return {name: value for name, value in config.items() if value in knobs.get(name, ())}


_STRATEGIES: dict[str, OpStrategy] = {}


def strategy_for(target_kind: str) -> OpStrategy | None:
    """The strategy for a target kind, or ``None`` if TVM's own operators are used there."""
    return _STRATEGIES.get(target_kind)


def register_strategy(strategy: OpStrategy) -> OpStrategy:
    """Register the strategy for its target kind. It replaces an earlier one for the kind."""
    register_backend(strategy.backend)
    _STRATEGIES[strategy.target_kind] = strategy
    return strategy
