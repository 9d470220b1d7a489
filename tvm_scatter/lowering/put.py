"""One index tensor for each of some axes: ``index_put``, ``index_add`` and their kin."""

from __future__ import annotations

from collections.abc import Sequence

from tvm_scatter.bounds.agreement import Agreement
from tvm_scatter.bounds.size_check import Place
from tvm_scatter.errors import ScatterError
from tvm_scatter.ops.shapes import broadcast
from tvm_scatter.problem.reductions import check_dtypes
from tvm_scatter.problem.signature import Dim
from tvm_scatter.problem.symbolic_size import SymbolicSize

from .draft import Draft, Lowered, dtype_of
from .operands import Operand
from .recipes import LinearTuples


def lower_put(draft: Draft) -> Lowered:
    """Lower a call of ``index_put``."""
    call, operator, axes = draft.call, draft.operator, draft.call.axes
    indices = [draft.operand(index) for index in call.indices]
    data, updates = draft.operand(call.data), draft.operand(call.updates)
    shape = draft.shape(data)
    if not indices or len(axes) != len(indices) or len(indices) > len(shape):
        raise ScatterError(
            f"{operator}: {len(indices)} index tensors do not fit data of shape {shape}."
        )
    for index in indices:
        check_dtypes(operator, call.reduction, dtype_of(data), dtype_of(index), dtype_of(updates))
    data, updates, *indices = _agreeing(draft, data, updates, indices)
    shape, update_shape = draft.shape(data), draft.shape(updates)
    extents = tuple(shape[axis] for axis in axes)
    check = draft.index_check(data, indices, extents)
    indices = draft.of_one_dtype([draft.signed(index) for index in indices])
    common = broadcast(operator, [draft.shape(index) for index in indices])
    first, last = axes[0], axes[-1] + 1
    rest = tuple(dim for axis, dim in enumerate(shape) if axis not in axes)
    adjacent = _adjacent(axes)
    selected = shape[:first] + common + shape[last:] if adjacent else common + rest
    if broadcast(operator, [update_shape, selected]) != selected:
        raise ScatterError(
            f"{operator}: values of shape {update_shape} do not broadcast to {selected}, the "
            f"shape that the indices select from data of shape {shape}."
        )
    if not adjacent:
        indices = [draft.broadcast(index, common) for index in indices]
        recipe = LinearTuples(tuple(axes), len(common), call.wrap_negative)
        hint = "linear_index"
        places = draft.compute(recipe, indices, "int64", hint, (*common, *rest), shape)
        values = draft.broadcast(updates, selected) if update_shape else updates
        return draft.into_flattened(data, places, values, check)
    varies = _varies(update_shape, (shape[:first], common, shape[last:]))
    if varies is None:
        updates, varies = draft.broadcast(updates, selected), (True, True, True)
    indices = [
        index if draft.shape(index) == common else draft.broadcast(index, common)
        for index in indices
    ]
    problem = draft.problem(
        batch=SymbolicSize.product(shape[:first]),
        extents=tuple(SymbolicSize.product([dim]) for dim in extents),
        slice=SymbolicSize.product(shape[last:]),
        count=SymbolicSize.product(common),
        index_dtype=dtype_of(indices[0]),
        update_batch=varies[0],
        update_count=varies[1],
        update_slice=varies[2],
        wrap_negative=call.wrap_negative,
    )
    return draft.lowered(problem, data, indices, updates, check)


def _agreeing(
    draft: Draft, data: Operand, updates: Operand, indices: Sequence[Operand]
) -> list[Operand]:
    """Data, updates and indices, after a check of the symbolic sizes that must be equal.

    From then on these sizes have one name.
    """
    names = [f"index {i}" for i in range(len(indices))] if len(indices) > 1 else ["index"]
    tensors = {"data": data, "values": updates, **dict(zip(names, indices, strict=True))}
    agreement = Agreement(draft.operator, draft.symbols, tensors)
    common = agreement.expect_broadcast(names)
    axes = draft.call.axes
    rest = [Place("data", d) for d in range(data.ty.ndim) if d not in axes]
    first = axes[0] if _adjacent(axes) else 0
    agreement.expect_to_fit("values", [*rest[:first], *common, *rest[first:]])
    return list(draft.after(agreement.check(), tensors).values())


def _adjacent(axes: Sequence[int]) -> bool:
    return list(axes) == list(range(axes[0], axes[0] + len(axes)))


def _varies(
    updates: Sequence[Dim], groups: Sequence[Sequence[Dim]]
) -> tuple[bool, bool, bool] | None:
    """Whether the updates vary over batch, count and slice.

    ``None`` if they vary over some axes of a group, but not over all of them.
    """
    total = sum(len(group) for group in groups)
    padded = (1,) * (total - len(updates)) + tuple(updates)
    flags, start = [], 0
    for group in groups:
        part = padded[start : start + len(group)]
        start += len(group)
        if part == tuple(group):
            flags.append(True)
        elif all(dim == 1 for dim in part):
            flags.append(False)
        else:
            return None
    return flags[0], flags[1], flags[2]
