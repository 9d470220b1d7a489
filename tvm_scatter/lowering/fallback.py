"""Expresses the operators of this package by TVM's own, for targets that have no strategy.

The importers of this package emit its operators. Without this fallback, a model that TVM alone can
compile for such a target would not compile any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax, te, tirx, topi

from tvm_scatter.ops.names import INDEX_PUT, SCATTER_ELEMENTS, SCATTER_ND
from tvm_scatter.ops.scatter_call import ScatterCall
from tvm_scatter.ops.shapes import common_shape, is_empty, same_size, static_shape
from tvm_scatter.selection.backend import backends

#: The reductions that TVM's own operators define as this package does.
_REDUCTIONS = ("update", "add", "mul", "min", "max")
_ZERO = tirx.IntImm("int64", 0)


def writes_nothing(call: ScatterCall) -> bool:
    """Whether an operand is certainly empty, so that the result is the data.

    TVM's own operators cannot serve such a call: they divide by the sizes.
    """
    # Indices of scatter_nd may be empty because the tuples have no component. Then each update
    # goes to all of the data.
    indices = () if call.form == SCATTER_ND else call.indices
    return any(map(is_empty, (call.data, call.updates, *indices)))


def stock_refusal(call: ScatterCall, target_kind: str) -> str | None:
    """Why no operator of TVM computes a call, as a sentence; ``None`` if one does."""
    if call.reduction not in _REDUCTIONS:
        return _refusal(call, target_kind, f"TVM has no {call.reduction}")
    if not call.include_self:
        return _refusal(call, target_kind, "TVM has no include_self=False")
    if call.leaves_out and call.form == SCATTER_ELEMENTS:
        return _refusal(call, target_kind, "TVM leaves out no update of an element")
    if any(static_shape(tensor) is None for tensor in call.tensors):
        return _refusal(call, target_kind, "an operand of unknown shape")
    if call.form == SCATTER_ELEMENTS and not _is_whole(call):
        return _refusal(call, target_kind, "an index box smaller than data or updates")
    return None


def legalize_as_stock(
    bb: relax.BlockBuilder, call: ScatterCall, stock: Mapping[str, Any]
) -> relax.Expr:
    """Legalize a call as the equivalent ``relax.scatter_elements`` or ``relax.scatter_nd``.

    Parameters
    ----------
    stock : mapping
        TVM's own legalizations, by the names of the operators.
    """
    if call.form == SCATTER_ELEMENTS:
        same = _elements(bb, call)
        return stock["relax.scatter_elements"](bb, bb.normalize(same))
    back: list[int] = []
    if call.form == INDEX_PUT:
        same, back = _put(bb, call)
    else:
        data, indices, updates = call.tensors
        extents = list(data.ty.shape)[: int(indices.ty.shape[-1])]
        if _wraps(call):
            indices = bb.emit_te(_wrap_last, indices, extents, primfunc_name_hint="wrap_negative")
        same = relax.op.scatter_nd(data, indices, updates, call.reduction)
    if call.leaves_out and int(same.args[1].ty.shape[-1]):
        result = _without_row(bb, bb.emit(stock["relax.scatter_nd"](bb, _with_row(bb, same))))
    else:
        result = stock["relax.scatter_nd"](bb, bb.normalize(same))
    if back == sorted(back):
        return result
    return bb.call_te(topi.transpose, bb.emit(result), back, primfunc_name_hint="transpose")


def _wraps(call: ScatterCall) -> bool:
    """Whether negative indices count from the end; where they are mistakes, they may as well."""
    return call.wrap_negative or not call.leaves_out


def _is_whole(call: ScatterCall) -> bool:
    """Whether index and updates have equal shapes, equal to the data's except along the axis."""
    data, index, updates = (list(tensor.ty.shape) for tensor in call.tensors)
    updates = updates or index
    [axis] = call.axes
    return len(data) == len(index) == len(updates) > 0 and all(
        same_size(u, i) and (d == axis or same_size(w, i))
        for d, (w, i, u) in enumerate(zip(data, index, updates, strict=True))
    )


def _elements(bb: relax.BlockBuilder, call: ScatterCall) -> relax.Expr:
    data, index, updates = call.tensors
    [axis] = call.axes
    shape = list(index.ty.shape)
    if updates.ty.ndim == 0 and shape:
        updates = bb.emit_te(topi.broadcast_to, updates, shape, primfunc_name_hint="broadcast_to")
    return relax.op.scatter_elements(data, index, updates, axis, call.reduction)


def _put(bb: relax.BlockBuilder, call: ScatterCall) -> tuple[relax.Expr, list[int]]:
    """Write an ``index_put`` as ``scatter_nd``, which needs the indexed axes in front.

    Returns the call and the permutation that brings the axes back.
    """
    data, axes = call.data, list(call.axes)
    rank = int(data.ty.ndim)
    others = [axis for axis in range(rank) if axis not in axes]
    order = axes + others
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    extents = [data.ty.shape[axis] for axis in axes]

    # Sizes are arguments, so that symbolic ones become parameters of the functions.
    def stacked(parts: Sequence[te.Tensor], extents: Sequence[Any]) -> te.Tensor:
        common = common_shape([part.shape for part in parts])
        wide = [topi.broadcast_to(topi.cast(part, "int64"), common) for part in parts]
        indices = topi.stack(wide, axis=len(common))
        return _wrap_last(indices, extents) if _wraps(call) else indices

    index = bb.emit_te(stacked, list(call.indices), extents, primfunc_name_hint="stacked")
    chosen = list(index.ty.shape)[:-1]
    front = axes[0] if adjacent else 0
    sizes = [data.ty.shape[axis] for axis in others]
    selected = [*sizes[:front], *chosen, *sizes[front:]]
    width = len(chosen)
    forward = [*range(front, front + width), *range(front), *range(front + width, len(selected))]

    def rows(tensor: te.Tensor, selected: Sequence[Any]) -> te.Tensor:
        return topi.transpose(topi.broadcast_to(tensor, selected), forward)

    updates = bb.emit_te(rows, call.updates, selected, primfunc_name_hint="rows")
    if order != sorted(order):
        data = bb.emit_te(topi.transpose, data, order, primfunc_name_hint="transpose")
    back = [order.index(axis) for axis in range(rank)]
    return relax.op.scatter_nd(data, index, updates, call.reduction), back


def _with_row(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A ``scatter_nd`` into one row more, which gets the updates whose index is out of bounds."""
    data, indices, updates = call.args
    extents = list(data.ty.shape)[: int(indices.ty.shape[-1])]

    def longer(data: te.Tensor) -> te.Tensor:
        rows, *others = data.shape

        def element(at: Any, *rest: Any) -> Any:
            zero = tirx.const(0, data.dtype)
            return tirx.if_then_else(at < rows, data(tirx.min(at, rows - 1), *rest), zero)

        return te.compute((rows + 1, *others), element, name="longer")

    def placed(indices: te.Tensor, extents: Sequence[Any]) -> te.Tensor:
        def place(*at: Any) -> Any:
            *which, component = at
            each = [indices(*which, number) for number in range(len(extents))]
            inside = [
                tirx.all(one >= 0, one < size) for one, size in zip(each, extents, strict=True)
            ]
            nowhere = tirx.Select(component == 0, tirx.Cast("int64", extents[0]), _ZERO)
            own = tirx.Cast("int64", indices(*at))
            return tirx.Select(tirx.all(*inside), own, nowhere)

        return te.compute(indices.shape, place, name="placed")

    more = bb.emit_te(longer, data, primfunc_name_hint="longer")
    at = bb.emit_te(placed, indices, extents, primfunc_name_hint="placed")
    return bb.normalize(relax.op.scatter_nd(more, at, updates, str(call.attrs.reduction)))


def _without_row(bb: relax.BlockBuilder, tensor: relax.Expr) -> relax.Expr:
    def rows(tensor: te.Tensor) -> te.Tensor:
        count, *others = tensor.shape
        return te.compute((count - 1, *others), lambda *at: tensor(*at), name="rows")

    return bb.call_te(rows, tensor, primfunc_name_hint="rows")


def _wrap_last(indices: te.Tensor, extents: Sequence[Any]) -> te.Tensor:
    """Replace negative indices by the same positions counted from the front.

    The last axis of ``indices`` runs over the components, which address axes of ``extents``.
    """

    def wrapped(*at: Any) -> Any:
        extent: Any = tirx.IntImm("int64", 0)
        for component, size in enumerate(extents):
            extent = tirx.Select(at[-1] == component, tirx.Cast("int64", size), extent)
        entry = indices(*at)
        return tirx.Select(entry < 0, entry + tirx.Cast(indices.dtype, extent), entry)

    return te.compute(indices.shape, wrapped, name="wrap_negative")


def _refusal(call: ScatterCall, target_kind: str, what: str) -> str:
    return (
        f"{call.operator}: no implementation for target {target_kind!r} ({what}); compile "
        f"for {' or '.join(backend.kind for backend in backends())}."
    )
