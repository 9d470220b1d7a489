"""One index for each update element: ``scatter_elements``, PyTorch's ``scatter`` family."""

from __future__ import annotations

from collections.abc import Sequence

from tvm_scatter.bounds.size_check import AtMost, SizeCheck
from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.reductions import check_dtypes
from tvm_scatter.problem.signature import Dim
from tvm_scatter.problem.symbolic_size import SymbolicSize

from .draft import Draft, Lowered, dtype_of
from .recipes import LinearElements


def lower_elements(draft: Draft) -> Lowered:
    """Lower a call of ``scatter_elements``."""
    call, operator = draft.call, draft.operator
    data, index, updates = map(draft.operand, call.tensors)
    check_dtypes(operator, call.reduction, dtype_of(data), dtype_of(index), dtype_of(updates))
    data_shape, index_shape, update_shape = map(draft.shape, (data, index, updates))
    data_box, index_box = data_shape or (1,), index_shape or (1,)
    axis = _checked_axis(operator, call.axes[0], len(data_box))
    if len(index_box) != len(data_box):
        raise ScatterError(
            f"{operator}: index of shape {index_shape} must have the rank of data of shape "
            f"{data_shape}."
        )
    scalar = not update_shape
    update_box = index_box if scalar else update_shape
    rules = _box_rules(draft, axis, data_box, index_box, update_box)
    if rules:
        tensors = {"updates": updates, "index": index, "data": data}
        size_check = SizeCheck(operator, tuple(rules), tensors, ("updates",))
        updates = draft.after(size_check, tensors)["updates"]
    check = draft.index_check(data, [index], (data_box[axis],))
    index = draft.signed(index)
    if not _is_whole(axis, data_box, index_box, update_box):
        recipe = LinearElements(axis, call.wrap_negative)
        places = draft.compute(recipe, [index], "int64", "linear_index", index_box, data_box)
        values = updates if scalar else draft.crop(updates, index_box)
        return draft.into_flattened(data, places, values, check)
    problem = draft.problem(
        batch=SymbolicSize.product(index_box[:axis]),
        extents=(SymbolicSize.product(data_box[axis : axis + 1]),),
        slice=SymbolicSize.product(index_box[axis + 1 :]),
        count=SymbolicSize.product(index_box[axis : axis + 1]),
        index_dtype=dtype_of(index),
        index_batch=True,
        index_slice=True,
        update_batch=not scalar,
        update_count=not scalar,
        update_slice=not scalar,
        wrap_negative=call.wrap_negative,
    )
    return draft.lowered(problem, data, [index], updates, check)


def _checked_axis(operator: str, axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ScatterError(
            f"{operator}: axis {axis} is out of range for data of rank {rank}; it must be "
            f"in [{-rank}, {rank - 1}]."
        )
    return axis % rank


def _box_rules(
    draft: Draft,
    axis: int,
    data: Sequence[Dim],
    index: Sequence[Dim],
    updates: Sequence[Dim],
) -> list[AtMost]:
    """The rules to check at run time for an index that may be larger than data or updates.

    Raises
    ------
    ScatterError
        If the index is larger, or if the ranks differ.
    """
    operator = draft.operator
    if len(updates) != len(index):
        raise ScatterError(
            f"{operator}: updates of shape {tuple(updates)} must have the rank of index "
            f"of shape {tuple(index)}."
        )
    unknown = []
    for d, (whole, box, source) in enumerate(zip(data, index, updates, strict=True)):
        if _exceeds(box, source):
            raise ScatterError(
                f"{operator}: index of shape {tuple(index)} is larger than updates of "
                f"shape {tuple(updates)} in dimension {d}."
            )
        if d != axis and _exceeds(box, whole):
            raise ScatterError(
                f"{operator}: index of shape {tuple(index)} is larger than data of shape "
                f"{tuple(data)} in dimension {d}, which is not the scatter axis {axis}."
            )
        if not draft.symbols.fits(box, source):
            unknown.append(AtMost("index", "updates", d))
        if not (d == axis or draft.symbols.fits(box, whole)):
            unknown.append(AtMost("index", "data", d))
    return unknown


def _exceeds(left: Dim, right: Dim) -> bool:
    return isinstance(left, int) and isinstance(right, int) and left > right


def _is_whole(axis: int, data: Sequence[Dim], index: Sequence[Dim], updates: Sequence[Dim]) -> bool:
    """Whether the index covers all lines of the data along ``axis``, laid out like the updates."""
    covers = all(d == axis or dim == data[d] for d, dim in enumerate(index))
    return covers and tuple(index[1:]) == tuple(updates[1:])
