"""Whether a compiler can make vectors of updates that a scatter computes."""

from __future__ import annotations

from tvm import tirx
from tvm.sym import Analyzer

from tvm_scatter.emit.computed_updates import ComputedUpdates, loads_of, substitute
from tvm_scatter.emit.weighted_rows import WeightedRows

from .draft import Lowered


def reads_neighbours(lowered: Lowered) -> bool:
    """Whether neighbours along a row are computed from neighbours, or from the same elements."""
    problem, producer = lowered.problem, lowered.producer
    assert producer is not None, "the updates are computed"
    if problem.index_slice or not problem.update_slice or problem.slice.is_one:
        # Elements are scattered one by one.
        return True
    shapes = (*producer.leaves, producer.updates)
    names = {dim for shape in shapes for dim in shape if isinstance(dim, str)}
    symbols = {name: tirx.Var(name, "int64") for name in names}
    leaves = [tirx.decl_buffer((1,), dtype) for dtype in producer.dtypes]
    updates = ComputedUpdates(producer, leaves, symbols)
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
