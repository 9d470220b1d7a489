"""Scatters into lines as scatters of rows: which become one, and what they cost either way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import tvm
from tvm.target import Target

from tvm_scatter.lowering.lower import lower
from tvm_scatter.ops.shapes import same_size
from tvm_scatter.options import current_options
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.selection.strategy import OpStrategy
from tvm_scatter.selection.undominated import MOST_ELEMENTS

from .analysis.line_values import (
    Leaf,
    OfBoth,
    OfEntries,
    Value,
    differ_in_entries,
    leaves_in,
)
from .normalised_scatters import NormalisedRows
from .predicted_gain import PredictedGain
from .predicted_times import PredictedTimes


@dataclass(frozen=True)
class Lines:
    """A scatter into lines that share an index.

    Attributes
    ----------
    scatter : NormalisedRows
        The scatter.
    value : Value
        Its updates.
    problem : ScatterProblem
        Its problem as it stands.
    """

    scatter: NormalisedRows
    value: Value
    problem: ScatterProblem

    @property
    def lines(self) -> int:
        """The number of lines."""
        return self.problem.batch.constant

    def continues(self, other: Lines) -> bool:
        """Whether both are one scatter of entries that stand end to end."""
        into_data = self.scatter.call.reduces.reduces_into_data(self.scatter.call.include_self)
        wraps = {each.scatter.wrap_negative for each in (self, other)} - {None}
        dtypes = self.scatter.index_dtypes | other.scatter.index_dtypes
        return (
            into_data
            and len(wraps) < 2
            # Cast to the type of the others, large numbers would be negative.
            and (len(dtypes) == 1 or "uint64" not in dtypes)
            and self.scatter.continues(other.scatter)
            and same_size(self.scatter.count, other.scatter.count)
            and any(isinstance(each, OfBoth | OfEntries) for each in leaves_in(self.value))
            and differ_in_entries(self.value, other.value)
        )


@dataclass(frozen=True)
class RowsOfLines:
    """Scatters one after the other, each into the result of the one before.

    Attributes
    ----------
    scatters : list of Lines
        The scatters.
    variables : list of relax.Var
        What they are bound to.
    fill : relax.Expr or None
        The number that the first one's data are everywhere; ``None`` if they must be read.
    overwritten : bool
        Whether the first overwrites its data as it stands.
    """

    scatters: Sequence[Lines]
    variables: Sequence[Any]
    fill: Any
    overwritten: bool
    target: Target
    strategy: OpStrategy

    @cached_property
    def groups(self) -> list[list[Lines]]:
        """The scatters, those together that become one."""
        groups: list[list[Lines]] = []
        for each in self.scatters:
            if groups and each.continues(groups[-1][-1]):
                groups[-1].append(each)
            else:
                groups.append([each])
        return groups

    @property
    def lines(self) -> int:
        """The number of lines."""
        return self.scatters[0].lines

    @cached_property
    def _gain(self) -> PredictedGain:
        symbols = {symbol for each in self.scatters for symbol in each.problem.symbols}
        return PredictedGain.over(symbols, self._costs, self.target)

    def _costs(self, sizes: Mapping[str, int]) -> tuple[float, float] | None:
        """Microseconds as lines and as rows; ``None`` if nothing is known of these sizes."""
        problems = {id(each): each.problem.with_sizes(sizes) for each in self.scatters}
        first = problems[id(self.scatters[0])]
        if max(each.elements for each in problems.values()) > MOST_ELEMENTS:
            return None
        before, after = 0.0, self._turn(first.data_size, first.data_dtype)
        for number, each in enumerate(self.scatters):
            before += self._scatter(self._follows(problems[id(each)], number), each.value)
        if self.fill is None:
            after += self._turn(first.data_size, first.data_dtype)
        turned: list[Leaf] = []
        for number, group in enumerate(self.groups):
            problem = problems[id(group[0])]
            of_rows = replace(
                self._follows(problem, number),
                batch=SymbolicSize(),
                slice=problem.batch,
                count=SymbolicSize(len(group)) * problem.count,
            )
            if self.fill is None:
                of_rows = replace(of_rows, in_place=current_options().in_place)
            if len(group) > 1:
                # The last update of several must win, which no two of one scatter need.
                ordered = of_rows.deterministic or of_rows.reduces.is_store
                of_rows = replace(of_rows, unique=False, deterministic=ordered)
                after += self._joined(group, of_rows)
            after += self._scatter(of_rows, group[0].value)
            for leaf in leaves_in(group[0].value):
                if isinstance(leaf, OfBoth) and not any(leaf.is_same(each) for each in turned):
                    turned.append(leaf)
                    after += self._turn(problem.update_size, str(leaf.tensor.ty.dtype))
        return (before, after) if before > 0 and after < float("inf") else None

    @property
    def gains(self) -> bool:
        """Whether rows are predicted to take clearly less, in the mean of the sizes."""
        return self._gain.is_clear

    def _follows(self, problem: ScatterProblem, number: int) -> ScatterProblem:
        """The problem of a scatter, the first or a later one, as later passes leave it."""
        if number or self.overwritten:
            return replace(problem, in_place=current_options().in_place or problem.in_place)
        if self.fill is not None and self.strategy.backend.fills_under(current_options()):
            return replace(problem, fill="0")
        return problem

    def _scatter(self, problem: ScatterProblem, value: Value) -> float:
        """Microseconds of a scatter whose updates are computed by it, or before."""
        stored = self._times.scatter(problem)
        if isinstance(value, Leaf):
            return stored
        backend = self.strategy.backend
        stored += self._copy(problem.update_size.constant * _item(problem.data_dtype))
        if not backend.fuses_under(current_options()) or problem.data_dtype not in backend.fuses:
            return stored
        return min(stored, self._times.scatter(replace(problem, fused=True)))

    @cached_property
    def _times(self) -> PredictedTimes:
        return PredictedTimes(self.target, self.strategy)

    def _turn(self, elements: SymbolicSize, dtype: str) -> float:
        """Microseconds of a transpose, which reads and writes each element once."""
        return self._copy(elements.constant * _item(dtype))

    def _copy(self, size: int) -> float:
        return self._times.moved(2 * size)

    def _joined(self, group: Sequence[Lines], whole: ScatterProblem) -> float:
        """Microseconds to put indices, and what else there is of entries, end to end."""
        items = [_item(whole.index_dtype)] * len(whole.extents)
        leaves = leaves_in(group[0].value)
        items += [
            _item(str(each.tensor.ty.dtype)) for each in leaves if isinstance(each, OfEntries)
        ]
        return sum(self._copy(whole.count.constant * item) for item in items)

    def __str__(self) -> str:
        """What is done, as a clause."""
        count, groups = len(self.scatters), len(self.groups)
        said = f"turns {self.lines} lines into rows"
        if count > 1:
            said += f" for {count} scatters, which become {groups}"
        return f"{said}: {self._gain}"


def lines_of(scatter: NormalisedRows, target: Target) -> ScatterProblem | None:
    """The problem of a scatter into several lines by one index; ``None`` if it is another."""
    problem = lower(scatter.call, current_options(), target.kind.name).problem
    of_lines = problem.batch.is_static and problem.shares_index and problem.slice.is_one
    return problem if of_lines and problem.data_size.constant and problem.count.constant else None


def _item(dtype: str) -> int:
    return max(int(tvm.DataType(dtype).bits) // 8, 1)
