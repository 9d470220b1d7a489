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
from .default_rules import Rule, default_rules, holds
from .records import TunedRecord, tuned_records
from .shipped_log import shipped_records

Config = Mapping[str, int]


class Implementation(ABC):
    """One way to compute a scatter. Subclass it in a file of its own and add it to the table.

    Attributes
    ----------
    name : str
        What callers force it by and what records store.
    deterministic : bool
        Whether every problem it takes gives equal bits on every run.
    capturable : bool
        Whether a CUDA graph may hold it: no synchronisation, allocation or host branch on data.
    accumulates_wide : bool
        Whether sums of 16-bit floats are made in 32 bits and rounded once
        (:func:`~tvm_scatter.problem.reductions.sum_error_bound`); otherwise after every addition.
    rewrites_output : bool
        Whether it reads and writes the whole output where the problem is in place as well.
    list_bytes : int
        About so many bytes for each destination go to memory or come from there, besides what any
        implementation must move.
    summary : str
        One line for people: when it wins.
    """

    name: str
    deterministic: bool = False
    accumulates_wide: bool = False
    capturable: bool = True
    rewrites_output: bool = False
    list_bytes: int = 0
    summary: str = ""

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        """Why this implementation cannot compute the problem on the target, or ``None``."""
        return None

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        """What can be turned: for each knob its valid values, the default first."""
        return {}

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config) -> Any:
        """Bytes of scratch memory, in the arithmetic of ``sizes``."""
        return 0

    @abstractmethod
    def emit(self, operands: Operands, config: Config) -> None:
        """Add the statements that compute ``operands.problem`` to the function being built."""

    def config(self, problem: ScatterProblem, target: Any, chosen: Config | None = None) -> Config:
        """``chosen``, completed with the defaults of the knobs it leaves out.

        Raises
        ------
        ScatterError
            If ``chosen`` names a knob or a value that this problem does not have.
        """
        knobs = self.knobs(problem, target)
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
    """One arm of a selection: taken when ``conditions`` hold at run time."""

    implementation: Implementation
    config: Config
    conditions: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True)
class Selection:
    """What the strategy chose, and why.

    Attributes
    ----------
    branches : tuple of Branch
        Tried in order; the last has no condition. A static problem has exactly one.
    source : str
        ``"forced"``, ``"tuned"`` or ``"default"``.
    reason : str
        One sentence.
    alternatives : dict of str to (str or None)
        For each other implementation, why it could not have been chosen, or ``None`` if it could.
    """

    branches: tuple[Branch, ...]
    source: str
    reason: str
    alternatives: Mapping[str, str | None] = field(default_factory=dict)

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

        The entry of the lowest level must take every problem.

        Raises
        ------
        ScatterError
            If one of that name is there already.
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
        """The table in order, by name."""
        return {implementation.name: implementation for _, implementation in self._entries}

    @property
    def target_kind(self) -> str:
        """The kind of target the table is for."""
        return self.backend.kind

    @property
    def device_check(self) -> DeviceCheck | None:
        """How indices are checked on a device; ``None`` where the host can read them."""
        return self.backend.device_check

    @property
    def captures(self) -> bool:
        """Whether the options in force ask for CUDA graphs, and there are any for this kind."""
        return self.backend.captures_graphs and current_options().captures

    def refusal(
        self, implementation: Implementation, problem: ScatterProblem, target: Any
    ) -> str | None:
        """Why ``implementation`` must not compute ``problem``, whatever the reason."""
        if problem.needs_order and not implementation.deterministic:
            return "it is not deterministic and a deterministic result is asked for"
        if self.captures and not implementation.capturable:
            return "no CUDA graph can hold it and one is asked for"
        return implementation.refusal(problem, target)

    def applicable(self, problem: ScatterProblem, target: Any) -> dict[str, Implementation]:
        """The implementations that may compute the problem, in order."""
        return {
            name: implementation
            for name, implementation in self.implementations.items()
            if self.refusal(implementation, problem, target) is None
        }

    def select(
        self, problem: ScatterProblem, target: Any, options: Options | None = None
    ) -> Selection:
        """Choose: forced by the caller, else the best tuned record, else by rank and size.

        The records of the database in force go before those of the log that is shipped.

        Raises
        ------
        ScatterError
            If the caller forces an implementation that is unknown or cannot take the problem.
        """
        options = options or current_options()
        if options.implementation is not None:
            return self._forced(problem, target, options)
        spellings = [problem]
        if problem.in_place:
            # What wins with a copy is the best guess where nothing was timed without it.
            spellings.append(replace(problem, in_place=False))
        logs: dict[str, Iterator[TunedRecord]] = {
            "tuned records": chain.from_iterable(tuned_records(each, target) for each in spellings)
        }
        if options.shipped_log:
            logs["log shipped for this architecture"] = chain.from_iterable(
                self._settled(shipped_records(each, target), problem, target) for each in spellings
            )
        for log, records in logs.items():
            for record in records:
                branch = self.branch(record.implementation, record.config, problem, target)
                if branch is not None:
                    reason = f"fastest of the {log}, {record.microseconds:.1f} us"
                    return self._selection(problem, target, (branch,), "tuned", reason)
        return self.default(problem, target)

    def _settled(
        self, records: Sequence[TunedRecord], problem: ScatterProblem, target: Any
    ) -> Sequence[TunedRecord]:
        """The records of a log that may be older than the default; none if they tell nothing of it.

        Where the default's implementation was the fastest, but with other knobs only, it is not
        known which are better.
        """
        if not records:
            return records
        default = self.default(problem, target)
        name, config = default.implementation.name, dict(default.config)
        if records[0].implementation != name or len(default.branches) > 1:
            return records
        timed = any(r.implementation == name and dict(r.config) == config for r in records)
        return records if timed else ()

    def default(
        self, problem: ScatterProblem, target: Any, rules: Sequence[Rule] | None = None
    ) -> Selection:
        """Choose by rank and size alone: by the rules in force for the target, or by others."""
        branches, reason = self._default(problem, target, rules)
        return self._selection(problem, target, branches, "default", reason)

    def branch(
        self, name: str, config: Config, problem: ScatterProblem, target: Any
    ) -> Branch | None:
        """The branch for an implementation's name and knobs, or ``None`` if it is not to be had.

        It is not where the name or the knobs are of another version of this table or for another
        problem, or where the implementation must not compute this one.
        """
        implementation = self.implementations.get(name)
        if implementation is None or self.refusal(implementation, problem, target) is not None:
            return None
        if _valid(config, implementation.knobs(problem, target)) != dict(config):
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
        refusal = self.refusal(implementation, problem, target)
        if refusal is not None:
            raise ScatterError(
                f"scatter: implementation {name!r} cannot be forced on [{problem}]: {refusal}."
            )
        config = implementation.config(problem, target, dict(options.knobs))
        branch = Branch(implementation, config)
        return self._selection(problem, target, (branch,), "forced", "asked for by the caller")

    def _default(
        self, problem: ScatterProblem, target: Any, rules: Sequence[Rule] | None
    ) -> tuple[tuple[Branch, ...], str]:
        applicable = self.applicable(problem, target)
        branches: list[Branch] = []
        if rules is None:
            rules = default_rules(self.target_kind, not problem.is_static)
        for rule in rules:
            implementation = applicable.get(rule.implementation)
            if implementation is None:
                continue
            verdict, open_conditions = holds(rule, problem)
            if verdict is False:
                continue
            # Where sizes decide at run time every implementation is there once, with default knobs.
            wanted = {} if branches or open_conditions else rule.config
            knobs = implementation.knobs(problem, target)
            config = implementation.config(problem, target, _valid(wanted, knobs))
            branches.append(Branch(implementation, config, open_conditions))
            if verdict is True:
                return tuple(branches), rule.because
        if not applicable:
            raise self._nothing_takes(problem, target)
        last = list(applicable.values())[-1]
        branches.append(Branch(last, last.config(problem, target)))
        return tuple(branches), "the entry that takes every problem"

    def _nothing_takes(self, problem: ScatterProblem, target: Any) -> ScatterError:
        refusals = "; ".join(
            f"{name}: {self.refusal(implementation, problem, target)}"
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
    ) -> Selection:
        branches = list(branches)
        if not problem.is_static:
            reason += "; the sizes decide at run time" if len(branches) > 1 else ""
        chosen = {branch.implementation.name for branch in branches}
        alternatives = {
            name: self.refusal(implementation, problem, target)
            for name, implementation in self.implementations.items()
            if name not in chosen
        }
        return Selection(tuple(branches), source, reason, alternatives)


def _valid(config: Config, knobs: Mapping[str, Sequence[int]]) -> Config:
    return {name: value for name, value in config.items() if value in knobs.get(name, ())}


_STRATEGIES: dict[str, OpStrategy] = {}


def strategy_for(target_kind: str) -> OpStrategy | None:
    """The strategy for a target kind, or ``None`` where TVM's own operators stay in force."""
    return _STRATEGIES.get(target_kind)


def register_strategy(strategy: OpStrategy) -> OpStrategy:
    """Make a strategy the one for its target kind; the last one registered counts."""
    register_backend(strategy.backend)
    _STRATEGIES[strategy.target_kind] = strategy
    return strategy
