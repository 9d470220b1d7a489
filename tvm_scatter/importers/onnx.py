"""ONNX's scatters and gathers for TVM's ``from_onnx``, in every opset."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import tvm
from tvm import relax, te, tirx

from tvm_scatter.errors import ScatterError
from tvm_scatter.importers.shapes import differ, number_of, shape_of, text
from tvm_scatter.ops import operators as ops
from tvm_scatter.options import current_options

from . import (
    onnx_bags,
    onnx_broadcast,
    onnx_constants,
    onnx_expand,
    onnx_fold,
    onnx_max_pool,
    onnx_one_hot,
    onnx_range,
    onnx_read,
    onnx_reshape,
    onnx_reverse_sequence,
    onnx_segments,
    onnx_shapes,
    onnx_slice,
    onnx_top_k,
    onnx_windows,
)
from .on_import import forget, when_imported
from .onnx_sizes import with_shape, within_bounds

_MODULE = "tvm.relax.frontend.onnx.onnx_frontend"
_TABLE = "_get_convert_map"
_STOCK = "_tvm_scatter_stock_convert_map"
_IMPORTER = "ONNXGraphImporter"
_STOCK_IMPORT = "_tvm_scatter_stock_from_onnx"

#: The reductions that each opset allows, newest first.
_REDUCTIONS = (
    # "min" and "max" are of opset 18, but torch.onnx writes them before, and onnxruntime runs them.
    (16, ("none", "add", "mul", "min", "max")),
    (0, ("none",)),
)

Convert = Callable[[Any, str, int, Sequence[Any], dict[str, Any]], Any]
IsLeft = Callable[[Sequence[Any], dict[str, Any]], bool]


class _Converter:
    """A converter with the interface that TVM's importer expects.

    Parameters
    ----------
    operator : str
        Its name in ONNX.
    convert : callable
        What makes a Relax expression of the inputs.
    stock : object, optional
        TVM's own converter.
    is_left : callable, optional
        Whether inputs and attributes are left to TVM's own converter.
    constants : sequence of int, optional
        The inputs that should be constant, or may be shapes or sizes. TVM can keep weights as
        parameters instead.
    """

    def __init__(
        self,
        operator: str,
        convert: Convert,
        stock: Any = None,
        is_left: IsLeft | None = None,
        constants: Sequence[int] = (),
    ) -> None:
        self.operator = operator
        self.convert = convert
        self.stock = stock
        self.is_left = is_left
        self.constants = constants

    def get_converter(self, opset: int) -> Callable[..., Any]:
        """The function that TVM calls for nodes of an opset."""

        def convert(bb: Any, inputs: Sequence[Any], attributes: dict[str, Any], params: Any) -> Any:
            inputs = _with_constants(inputs, self.constants, params)
            if self.is_left is not None and self.is_left(inputs, attributes):
                return self.stock.get_converter(opset)(bb, inputs, attributes, params)
            operands = [
                x if at in self.constants and not _is_tensor(x) else self.tensor(bb, x)
                for at, x in enumerate(inputs)
            ]
            return self.convert(bb, self.operator, opset, operands, attributes)

        return convert

    def tensor(self, bb: Any, value: Any) -> Any:
        """An operand as a normalised expression, which the importer's operands need not be."""
        if value is None:
            return None
        value = bb.normalize(value)
        if not isinstance(value.ty, relax.TensorType):
            raise ScatterError(f"{self.operator}: an operand of type {value.ty} is not a tensor.")
        return value


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
        updates,
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
    return ops.scatter_nd(data, indices, updates, reduction, operator=operator)


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


CONVERTERS = {
    name: _Converter(name, convert)
    for name, convert in (
        ("Scatter", scatter_elements),
        ("ScatterElements", scatter_elements),
        ("ScatterND", scatter_nd),
        ("TensorScatter", tensor_scatter),
    )
}
CONVERTERS["Col2Im"] = _Converter("Col2Im", onnx_windows.col2im, constants=(1, 2))
CONVERTERS["Expand"] = _Converter("Expand", onnx_expand.expand, constants=(1,))
CONVERTERS[onnx_bags.SEGMENT_REDUCE] = _Converter(
    onnx_bags.SEGMENT_REDUCE, onnx_segments.segment_reduce, constants=(2,)
)
CONVERTERS["ReverseSequence"] = _Converter(
    "ReverseSequence", onnx_reverse_sequence.reverse_sequence
)
CONVERTERS["MaxUnpool"] = _Converter("MaxUnpool", onnx_windows.max_unpool, constants=(2,))

#: Operators that read by index. TVM's converters add the extent to negative indices, and then
#: bounds checks cannot tell whether these were in range.
_READERS: dict[str, Convert] = {
    "Gather": onnx_read.gather,
    "GatherElements": onnx_read.gather_elements,
    "GatherND": onnx_read.gather_nd,
}

#: Operators that TVM's importer has, which inputs are left to it, and which should be constant.
_SHARED: dict[str, tuple[Convert, IsLeft, tuple[int, ...]]] = {
    **{name: (convert, onnx_read.is_left_to_TVM, ()) for name, convert in _READERS.items()},
    "MaxPool": (onnx_max_pool.max_pool, onnx_max_pool.is_left_to_TVM, ()),
    "OneHot": (onnx_one_hot.one_hot, onnx_one_hot.is_left_to_TVM, (1, 2)),
    "Range": (onnx_range.arange, onnx_range.is_left_to_TVM, (0, 1, 2)),
    "TopK": (onnx_top_k.top_k, onnx_top_k.is_left_to_TVM, (1,)),
}


def install_onnx() -> None:
    """Add the converters to TVM's importer, as soon as it is imported."""
    when_imported(_MODULE, _extend)


def uninstall_onnx() -> None:
    """Restore TVM's importer."""
    forget(_MODULE)
    if _MODULE in sys.modules:
        _restore(sys.modules[_MODULE])


def _extend(module: ModuleType) -> None:
    stock = getattr(module, _STOCK, None) or getattr(module, _TABLE)
    setattr(module, _STOCK, stock)

    def convert_map() -> dict[str, Any]:
        table = dict(stock())
        if current_options().enabled:
            table.update(CONVERTERS)
            for name, (convert, is_left, constants) in _SHARED.items():
                table[name] = _Converter(name, convert, table[name], is_left, constants)
            for name in onnx_broadcast.NAMES:
                table[name] = onnx_broadcast.Broadcasting(name, table[name])
            table["Concat"] = onnx_broadcast.Concat(table["Concat"])
            for name in onnx_constants.INPUTS:
                table[name] = onnx_constants.OfConstants(name, table[name])
            table["Reshape"] = onnx_reshape.Reshape(table["Reshape"])
            table["Slice"] = onnx_slice.Slice(table["Slice"])
            table[onnx_shapes.STAND_IN] = onnx_shapes.StandIn(table)
        return table

    setattr(module, _TABLE, convert_map)
    _fold_shapes(getattr(module, _IMPORTER))


def _fold_shapes(importer: type) -> None:
    """Have the importer see graphs in which what is computed from shapes is known."""
    stock_import = getattr(importer, _STOCK_IMPORT, None) or importer.from_onnx  # type: ignore[attr-defined]
    setattr(importer, _STOCK_IMPORT, stock_import)

    def from_onnx(self: Any, graph: Any, opset: int) -> Any:
        if current_options().enabled:
            graph = onnx_bags.without_bags(graph)
            graph = onnx_shapes.renamed(onnx_fold.folded(graph, opset))
        return stock_import(self, graph, opset)

    importer.from_onnx = from_onnx  # type: ignore[attr-defined]


def _restore(module: ModuleType) -> None:
    if hasattr(module, _STOCK):
        setattr(module, _TABLE, getattr(module, _STOCK))
        delattr(module, _STOCK)
    importer = getattr(module, _IMPORTER)
    if hasattr(importer, _STOCK_IMPORT):
        importer.from_onnx = getattr(importer, _STOCK_IMPORT)
        delattr(importer, _STOCK_IMPORT)


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


def _with_constants(inputs: Sequence[Any], constants: Sequence[int], params: Any) -> list[Any]:
    """The inputs, some of them as the constants that they are even if kept as parameters."""
    get_constant = sys.modules[_MODULE].get_constant
    return [get_constant(x, params) if at in constants else x for at, x in enumerate(inputs)]


def _is_tensor(value: Any) -> bool:
    """Whether a value is neither a shape nor a single size."""
    return not (isinstance(value, relax.ShapeExpr) or tvm.ir.is_prim_expr(value))


def _text(attribute: Any) -> str:
    return attribute.decode() if isinstance(attribute, bytes) else str(attribute)
