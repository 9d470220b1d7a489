"""Whether vectors can be made of updates that a scatter computes, and sums along their rows."""

from __future__ import annotations

from tvm import tirx
from tvm.sym import Analyzer

from tvm_scatter.emit.computed_updates import ComputedUpdates, loads_of, substitute
from tvm_scatter.emit.owned_updates import OwnedUpdates
from tvm_scatter.emit.weighted_rows import WARP, WeightedRows
from tvm_scatter.problem.vectors import widest_vector

from .draft import Lowered


def reads_neighbours(lowered: Lowered) -> bool:
    """Whether neighbours along a row are computed from neighbours, or from the same elements."""
    problem = lowered.problem
    if problem.index_slice or not problem.update_slice or problem.slice.is_one:
        # Elements are scattered one by one.
        return True
    updates = computed_updates(lowered)
    if any(isinstance(size, int | tirx.IntImm) and int(size) == 0 for size in updates.shape):
        # There are none.
        return True
    symbols = updates.symbols
    row, head, column = (tirx.Var(name, "int64") for name in ("row", "head", "column"))
    line = problem.slice.value(symbols)
    axes = updates.axes_of(line)
    if problem.softmax:
        value = WeightedRows(updates, problem.count.value(symbols)).value(row, head, column)
    elif axes is None:
        return False
    else:
        value = updates.expression(row, column, axes)
    for load in loads_of(value):
        [position] = load.indices
        after = substitute(position, {column: column + 1})
        step = Analyzer().simplify(after - position)
        if not (isinstance(step, tirx.IntImm) and int(step) in (0, 1)):
            return False
    return True


def refusal_of_sums(lowered: Lowered) -> str | None:
    """Why threads cannot share logits that are sums along the columns; ``None`` if they can."""
    problem = lowered.problem
    if not problem.slice.is_static or problem.slice.constant == 0:
        return "the number of columns is unknown"
    updates = computed_updates(lowered)
    if OwnedUpdates.of(updates, problem) is None:
        return "an index has no row of updates of its own"
    rows = WeightedRows(updates, problem.count.value(updates.symbols))
    sharing = rows.sharing(rows.vector(widest_vector(problem)))
    if sharing > WARP:
        return f"{rows.columns} columns that have one logit are too many for a warp"
    return None


def computed_updates(lowered: Lowered) -> ComputedUpdates:
    """The updates of a lowered call that computes them, over leaves and sizes of no function."""
    producer = lowered.producer
    assert producer is not None, "the updates are computed"
    shapes = (*producer.leaves, producer.updates)
    names = {dim for shape in shapes for dim in shape if isinstance(dim, str)}
    symbols = {name: tirx.Var(name, "int64") for name in names | {*lowered.problem.symbols}}
    leaves = [tirx.decl_buffer((1,), dtype) for dtype in producer.dtypes]
    return ComputedUpdates(producer, leaves, symbols)
