"""Finds the tensor that a tensor is a broadcast of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from tvm_scatter.ops.shapes import is_one, same_size, static_shape


@dataclass(frozen=True)
class BroadcastSource:
    """The source of a tensor that varies along one axis only.

    Attributes
    ----------
    source : relax.Expr
        A tensor of which at most one axis is longer than 1.
    length : int or expression
        The size of that axis.
    dtypes : tuple of str
        Data types that the source is cast to, in order.
    path : tuple of relax.Var
        The variables from the tensor back to the source; the tensor's own comes first. None if the
        tensor itself is the source.
    """

    source: Any
    length: Any
    dtypes: tuple[str, ...]
    path: tuple[Any, ...]

    def row(self, source: Any, emit: Callable[[Any], Any]) -> Any:
        """Emit the reshape and the casts that make ``source`` the 1-D tensor."""
        row = source
        if isinstance(row, tvm.ir.GenericConst):
            # What is known of a constant index is asked of the constant.
            row = relax.const(row.value.numpy().reshape(-1), str(row.ty.dtype))
        if row.ty.ndim != 1:
            row = emit(relax.op.reshape(row, [self.length]))
        for dtype in self.dtypes:
            row = emit(relax.op.astype(row, dtype))
        return row


def broadcast_source(tensor: Any, axis: int, values: Mapping[Any, Any]) -> BroadcastSource | None:
    """Find the source of ``tensor``; ``None`` unless it certainly varies along ``axis`` only.

    A tensor without other axes longer than 1 varies so, and may be its own source.

    Parameters
    ----------
    values : mapping
        The expression that each variable is bound to.
    """
    shape = static_shape(tensor)
    if shape is None:
        return None
    length = shape[axis]
    at: int | None = axis
    dtypes: list[str] = []
    path: list[Any] = []
    while not _varies_only_along(tensor, at) or tensor.ty.ndim > 1:
        call: Any = values.get(tensor) if isinstance(tensor, relax.Var) else None
        step = _STEPS.get(_operator(call))
        known = step is not None and static_shape(call.args[0]) is not None
        moved = step(call, at) if step is not None and known else None
        # Behind a source there may be one with a single axis, which is that of other scatters, too.
        is_source = _varies_only_along(tensor, at)
        if moved is None or (is_source and moved.axis is None):
            if is_source:
                break
            return None
        if _operator(call) == "relax.astype":
            dtypes.insert(0, str(call.attrs.dtype))
        path.append(tensor)
        tensor, at = call.args[0], moved.axis
    return BroadcastSource(tensor, length, tuple(dtypes), tuple(path))


@dataclass(frozen=True)
class Origin:
    """A tensor, and the axis of it that another tensor varies along."""

    tensor: Any
    axis: int


def origin(tensor: Any, axis: int, values: Mapping[Any, Any]) -> Origin | None:
    """The first of the tensors that ``tensor`` is a broadcast of; perhaps it is one itself.

    ``None`` unless ``tensor`` certainly varies along ``axis`` only.
    """
    at: int | None = axis
    while isinstance(tensor, relax.Var):
        call: Any = values.get(tensor)
        step = None if _operator(call) == "relax.astype" else _STEPS.get(_operator(call))
        moved = step(call, at) if step and static_shape(call.args[0]) is not None else None
        if moved is None:
            break
        tensor, at = call.args[0], moved.axis
    return Origin(tensor, at) if at is not None and _varies_only_along(tensor, at) else None


@dataclass(frozen=True)
class _Moved:
    """The operand's axis that becomes the given one; ``None`` if it is broadcast along it."""

    axis: int | None


def _operator(call: Any) -> str:
    return call.op.name if isinstance(call, relax.Call) and hasattr(call.op, "name") else ""


def _varies_only_along(tensor: Any, axis: int | None) -> bool:
    shape = static_shape(tensor) or []
    return all(is_one(size) for at, size in enumerate(shape) if at != axis)


def _broadcast(call: Any, axis: int | None) -> _Moved | None:
    if axis is None:
        return _Moved(None)
    source, result = static_shape(call.args[0]) or [], static_shape(call) or []
    at = axis - (len(result) - len(source))
    if at < 0:
        return _Moved(None) if is_one(result[axis]) else None
    return _Moved(at) if same_size(source[at], result[axis]) else None


def _expand_dims(call: Any, axis: int | None) -> _Moved:
    rank = call.ty.ndim
    new = {int(at) % rank for at in call.attrs.axis}
    kept = [at for at in range(rank) if at not in new]
    return _Moved(kept.index(axis) if axis in kept else None)


def _squeeze(call: Any, axis: int | None) -> _Moved:
    shape = static_shape(call.args[0]) or []
    if call.attrs.axis is None:
        gone = {at for at, size in enumerate(shape) if is_one(size)}
    else:
        gone = {int(at) % len(shape) for at in call.attrs.axis}
    kept = [at for at in range(len(shape)) if at not in gone]
    return _Moved(None if axis is None else kept[axis])


def _permute_dims(call: Any, axis: int | None) -> _Moved:
    rank = call.ty.ndim
    axes: Sequence[Any] = call.attrs.axes or range(rank - 1, -1, -1)
    return _Moved(None if axis is None else int(list(axes)[axis]) % rank)


def _reshape(call: Any, axis: int | None) -> _Moved | None:
    """Follow a reshape that only adds or removes axes of size 1. Any other mixes axes."""
    source, result = static_shape(call.args[0]) or [], static_shape(call) or []
    before = [at for at, size in enumerate(source) if not is_one(size)]
    after = [at for at, size in enumerate(result) if not is_one(size)]
    if len(before) != len(after):
        return None
    if not all(same_size(source[b], result[a]) for b, a in zip(before, after, strict=True)):
        return None
    return _Moved(before[after.index(axis)] if axis in after else None)


def _same_axis(call: Any, axis: int | None) -> _Moved:
    return _Moved(axis)


_STEPS: dict[str, Callable[[Any, int | None], _Moved | None]] = {
    "relax.astype": _same_axis,
    "relax.broadcast_to": _broadcast,
    "relax.expand_dims": _expand_dims,
    "relax.permute_dims": _permute_dims,
    "relax.reshape": _reshape,
    "relax.squeeze": _squeeze,
}
