"""ONNX's scatters, in every opset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.errors import ScatterError
from tvm_scatter.importers.shapes import differ, shape_of, text
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops.shapes import number_of

from .onnx_sizes import with_shape, within_bounds

#: The reductions that each opset allows, newest first.
_REDUCTIONS = (
    # "min" and "max" are of opset 18, but torch.onnx writes them before, and onnxruntime runs them.
    (16, ("none", "add", "mul", "min", "max")),
    (0, ("none",)),
)


def scatter_elements(
    bb: Any, operator: str, opset: int, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """``ScatterElements``, and ``Scatter``, its older name."""
    data, indices, updates = inputs[:3]
    sizes, wanted = shape_of(updates), shape_of(indices)
    if len(sizes) != len(wanted) or any(map(differ, sizes, wanted)):
        raise ScatterError(
            f"{operator}: updates of shape {text(sizes)} must have the shape {text(wanted)} of "
            "indices."
        )
    return ops.scatter_elements(
        data,
        indices,
        with_shape(bb, operator, "updates", updates, wanted),
        int(attributes.get("axis", 0)),
        _reduction(operator, opset, attributes),
        wrap_negative=True,
        operator=operator,
    )


def scatter_nd(
    bb: Any, operator: str, opset: int, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """``ScatterND``."""
    data, indices, updates = inputs[:3]
    reduction = _reduction(operator, opset, attributes)
    updates = within_bounds(bb, updates)
    indices = _with_known_tuples(bb, operator, data, indices, updates)
    return ops.scatter_nd(data, indices, updates, reduction, operator=operator)


def _with_known_tuples(bb: Any, operator: str, data: Any, indices: Any, updates: Any) -> Any:
    """The indices with a known number of components, which follows from the ranks of all three."""
    shape = shape_of(indices)
    if not shape or isinstance(shape[-1], int):
        return indices
    rank = len(shape_of(data))
    components = len(shape) - 1 + rank - len(shape_of(updates))
    if not 0 <= components <= rank:
        raise ScatterError(
            f"{operator}: updates of shape {text(shape_of(updates))} do not have the rank that "
            f"indices of shape {text(shape)} and data of rank {rank} need."
        )
    return with_shape(bb, operator, "indices", indices, (*shape[:-1], components))


def tensor_scatter(
    bb: Any, operator: str, opset: int, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """``TensorScatter``: a run of rows for each batch entry, as a key-value cache is updated."""
    cache, update = inputs[:2]
    starts = inputs[2] if len(inputs) > 2 else None
    mode = _text(attributes.get("mode", "linear"))
    if mode not in ("linear", "circular"):
        raise ScatterError(f"{operator}: mode {mode!r} must be 'linear' or 'circular'.")
    shape, rows = shape_of(cache), shape_of(update)
    rank = len(shape)
    axis = int(attributes.get("axis", -2))
    if not -rank <= axis < rank or axis % rank == 0:
        raise ScatterError(
            f"{operator}: axis {axis} is out of range for a cache of shape {text(shape)}; it must "
            "be another one than the batch axis 0."
        )
    axis %= rank
    if len(rows) != rank:
        raise ScatterError(
            f"{operator}: an update of shape {text(rows)} must have the rank of the cache of shape "
            f"{text(shape)}."
        )
    rows_of_cache = (*shape[:axis], rows[axis], *shape[axis + 1 :])
    update = with_shape(bb, operator, "update", update, rows_of_cache)
    if starts is not None:
        starts = with_shape(bb, operator, "write_indices", starts, shape[:1])
    # The axes before the sequence are flattened into lines. Lines of one batch entry have one
    # start.
    lines, lines_of_entry = number_of(shape[:axis]), number_of(shape[1:axis])
    extent, count = shape[axis], rows[axis]

    # Sizes are arguments, so that symbolic ones become parameters of the functions.
    def line(lines: Any) -> te.Tensor:
        return te.compute((lines, 1), lambda p, _: p.astype("int64"), name="line")

    def place(given: Any, lines: Any, count: Any, lines_of_entry: Any, extent: Any) -> te.Tensor:
        def position(p: Any, t: Any) -> Any:
            start: Any = tirx.IntImm("int64", 0)
            if given is not None:
                start = given(tirx.floordiv(p, lines_of_entry)).astype("int64")
            at = start + t.astype("int64")
            return tirx.floormod(at, extent) if mode == "circular" else at

        return te.compute((lines, count), position, name="place")

    sizes = (lines, count, lines_of_entry, extent)
    indices = [
        bb.emit_te(line, lines, primfunc_name_hint="line"),
        bb.emit_te(place, starts, *sizes, primfunc_name_hint="place"),
    ]
    behind = shape[axis + 1 :]
    flat_cache = bb.emit(relax.op.reshape(cache, [lines, extent, *behind]))
    flat_rows = bb.emit(relax.op.reshape(update, [lines, count, *behind]))
    fits = isinstance(count, int) and isinstance(extent, int) and count <= extent
    result = ops.index_put(
        flat_cache,
        indices,
        flat_rows,
        [0, 1],
        wrap_negative=False,
        unique=fits,
        operator=operator,
    )
    return relax.op.reshape(bb.emit(result), list(shape))


def _reduction(operator: str, opset: int, attributes: dict[str, Any]) -> str:
    reduction = _text(attributes.get("reduction", "none"))
    allowed = next(names for since, names in _REDUCTIONS if opset >= since)
    if reduction not in allowed:
        # The words are those of TVM's importer, which tests of TVM look for.
        raise ScatterError(
            f"{operator}: Only {', '.join(allowed)} reductions are supported, but got "
            f"{reduction}, in opset {opset}."
        )
    return reduction


def _text(attribute: Any) -> str:
    return attribute.decode() if isinstance(attribute, bytes) else str(attribute)
