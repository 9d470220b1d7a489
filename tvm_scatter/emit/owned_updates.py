"""Updates as whoever writes a whole destination reads them.

What is read by the scatter's own index is then read by the destination: it is the same for all
updates of a destination, and so is what depends on columns alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.sym import Analyzer

from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes

from .computed_updates import (
    BRANCH,
    ComputedUpdates,
    function_name,
    loads_of,
    parts_of,
    same_number,
    substitute,
)
from .expressions import moves
from .operands import Operands
from .weighted_rows import leading_axes


class OwnedUpdates:
    """The updates of a problem, some of whose axes number the updates and all others the columns.

    Parameters
    ----------
    updates : ComputedUpdates
        The updates.
    problem : ScatterProblem
        The problem.

    Attributes
    ----------
    updates : ComputedUpdates
        The same, that depend on the destination where that is possible.
    rows : int
        How many of the first axes number the updates.
    width : int
        The columns.
    """

    def __init__(self, updates: ComputedUpdates, problem: ScatterProblem) -> None:
        sizes = Sizes.of(problem, updates.symbols)
        self.rows, self.width = leading_axes(updates, sizes.count), int(sizes.slice)
        self.updates = _of_destinations(updates, self.rows, problem, sizes)

    @staticmethod
    def of(updates: ComputedUpdates, problem: ScatterProblem) -> OwnedUpdates | None:
        """The updates, or ``None`` if they are not of this form."""
        if not _has_rows(problem):
            return None
        sizes = Sizes.of(problem, updates.symbols)
        width: Any = 1
        for size in updates.shape[leading_axes(updates, sizes.count) :]:
            width = width * size
        if not isinstance(width, int) or not same_number(width, sizes.slice):
            return None
        return OwnedUpdates(updates, problem)

    def parts(self) -> list[Any]:
        """What reads memory and is the same for all updates of a destination, in each column."""
        updates = self.updates
        analyzer = updates.analyzer()
        varying = {*updates.axes[: self.rows], updates.sum}
        found: list[Any] = []
        for expression in updates.expressions:
            for part in _parts(expression, varying, analyzer):
                if not any(tvm_ffi.structural_equal(part, other) for other in found):
                    found.append(part)
        return found


def read_by_destination(operands: Operands) -> ComputedUpdates:
    """The updates, that depend on the destination where that is possible for any destination.

    An order that is given may name a destination that its update does not have.
    """
    owned = OwnedUpdates.of(operands.updates, operands.problem)
    if owned is None or owned.updates.destination is None:
        return operands.updates
    updates = owned.updates
    analyzer = updates.analyzer()
    analyzer.bind(updates.destination, tvm.ir.Range(0, operands.sizes.extents[0]))
    loads = [load for expression in updates.expressions for load in loads_of(expression)]
    by_destination = [load for load in loads if moves(load, updates.destination)]
    inside = all(is_inside(load, analyzer) for load in by_destination)
    return updates if inside else operands.updates


def _has_rows(problem: ScatterProblem) -> bool:
    """Whether each entry of one index names the place of a row of updates of its own."""
    return (
        problem.batch.is_one
        and len(problem.extents) == 1
        and not (problem.index_slice or problem.index_batch)
        and problem.update_batch
        and problem.update_count
        and problem.update_slice
    )


def _of_destinations(
    updates: ComputedUpdates, rows: int, problem: ScatterProblem, sizes: Sizes
) -> ComputedUpdates:
    destination, extent = tirx.Var("destination", "int64"), sizes.extents[0]
    own = _OwnIndex(updates, rows, destination, extent)
    found = own.replaced(destination, {})
    if problem.wrap_negative and not problem.index_dtype.startswith("uint"):
        # An index may count from the end. Unless what it reads does so, too, that is another row.
        last = tirx.Var("last", "int64")
        own.analyzer.bind(last, tvm.ir.Range(0, extent))
        other = own.replaced(-1 - last, {last: extent - 1 - destination})
        if not all(map(tvm_ffi.structural_equal, found.expressions, other.expressions)):
            return updates
    return found


class _OwnIndex:
    """Puts something in the place of the own index of updates."""

    def __init__(self, updates: ComputedUpdates, rows: int, destination: Any, extent: Any) -> None:
        self._updates, self._destination = updates, destination
        self.analyzer = Analyzer()
        self._entry: Any = tirx.IntImm("int64", 0)
        for at, (axis, size) in enumerate(zip(updates.axes, updates.shape, strict=True)):
            self.analyzer.bind(axis, tvm.ir.Range(0, size))
            if at < rows:
                self._entry = self._entry * size + tirx.Cast("int64", axis)
        self.analyzer.bind(destination, tvm.ir.Range(0, extent))

    def replaced(self, index: Any, meaning: Mapping[Any, Any]) -> ComputedUpdates:
        """The updates with an expression for their own index, whose variables then get a meaning.

        What is chosen by the index is chosen before, while it is simple.
        """

        def known(load: Any) -> Any:
            return tirx.Cast(str(load.source.dtype), index) if self._is_own(load) else load

        def select(choice: Any) -> Any:
            return self._side(choice, choice.condition, choice.true_value, choice.false_value)

        def position(load: Any) -> Any:
            return tirx.BufferLoad(load.source, [self.analyzer.simplify(load.indices[0])])

        def branch(call: Any) -> Any:
            return self._side(call, *call.args) if function_name(call) == BRANCH else call

        def changed(expression: Any) -> Any:
            if expression is None:
                return None
            found = tvm_ffi.structural_map(expression, (tvm.ir.TensorLoad, known))
            found = tvm_ffi.structural_map(found, (tirx.Select, select))
            found = substitute(found, meaning)
            found = tvm_ffi.structural_map(found, (tvm.ir.TensorLoad, position))
            return tvm_ffi.structural_map(found, (tvm.ir.Call, branch))

        updates = copy(self._updates)
        updates.destination = self._destination
        updates.value, updates.logit, updates.term = map(
            changed, (updates.value, updates.logit, updates.term)
        )
        return updates

    def _is_own(self, load: Any) -> bool:
        named = any(load.source.same_as(leaf) for leaf in self._updates.own_index)
        return named and bool(self.analyzer.can_prove_equal(load.indices[0], self._entry))

    def _side(self, whole: Any, condition: Any, yes: Any, no: Any) -> Any:
        if self.analyzer.can_prove(condition):
            return yes
        return no if self.analyzer.can_prove(tirx.Not(condition)) else whole


def _parts(
    expression: Any, varying: set[Any], analyzer: Any, guarded: bool = False
) -> Iterator[Any]:
    """The largest parts without some variables that read memory, and may do so in any case."""
    fixed = not varying & set(tirx.analysis.undefined_vars(expression))
    loads = list(loads_of(expression)) if fixed else []
    if loads and (not guarded or all(is_inside(load, analyzer) for load in loads)):
        yield expression
        return
    is_branch = isinstance(expression, tvm.ir.Call) and function_name(expression) == BRANCH
    for at, part in enumerate(parts_of(expression)):
        yield from _parts(part, varying, analyzer, guarded or (is_branch and at > 0))


def is_inside(load: Any, analyzer: Any) -> bool:
    """Whether a load is certainly of an element that the leaf has."""
    [position], [size] = load.indices, load.source.shape
    inside = tirx.all(tirx.IntImm("int64", 0) <= position, position < size)
    return bool(analyzer.can_prove(inside))


def parts_without(expression: Any, variable: Any) -> Iterator[Any]:
    """The largest parts of an expression that do not depend on a variable, but are no constants."""
    depends = tirx.analysis.undefined_vars(expression)
    if variable not in depends:
        if depends or any(True for _ in loads_of(expression)):
            yield expression
        return
    for part in parts_of(expression):
        yield from parts_without(part, variable)
