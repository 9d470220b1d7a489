"""What TVM's ``from_onnx`` learns: ONNX's scatters and gathers, and what stands beside them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import tvm
from tvm import relax

from tvm_scatter.errors import ScatterError
from tvm_scatter.options import current_options

from . import (
    onnx_bags,
    onnx_boxes,
    onnx_broadcast,
    onnx_center_crop_pad,
    onnx_constants,
    onnx_expand,
    onnx_fold,
    onnx_max_pool,
    onnx_one_hot,
    onnx_pad,
    onnx_products,
    onnx_range,
    onnx_read,
    onnx_reshape,
    onnx_resize,
    onnx_reverse_sequence,
    onnx_scatter,
    onnx_segments,
    onnx_shapes,
    onnx_slice,
    onnx_tile,
    onnx_top_k,
    onnx_windows,
)
from .on_import import forget, when_imported
from .onnx_stock import MODULE, Node, OnStock, constant_of

_TABLE = "_get_convert_map"
_STOCK = "_tvm_scatter_stock_convert_map"
_IMPORTER = "ONNXGraphImporter"
_STOCK_IMPORT = "_tvm_scatter_stock_from_onnx"

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
            inputs = [
                constant_of(x, params) if at in self.constants else x for at, x in enumerate(inputs)
            ]
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


CONVERTERS = {
    name: _Converter(name, convert)
    for name, convert in (
        ("Scatter", onnx_scatter.scatter_elements),
        ("ScatterElements", onnx_scatter.scatter_elements),
        ("ScatterND", onnx_scatter.scatter_nd),
        ("TensorScatter", onnx_scatter.tensor_scatter),
    )
}
CONVERTERS["CenterCropPad"] = _Converter(
    "CenterCropPad", onnx_center_crop_pad.center_crop_pad, constants=(1,)
)
CONVERTERS["Col2Im"] = _Converter("Col2Im", onnx_windows.col2im, constants=(1, 2))
CONVERTERS["Expand"] = _Converter("Expand", onnx_expand.expand, constants=(1,))
CONVERTERS["OneHot"] = _Converter("OneHot", onnx_one_hot.one_hot, constants=(1,))
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
    "Range": (onnx_range.arange, onnx_range.is_left_to_TVM, (0, 1, 2)),
    "TopK": (onnx_top_k.top_k, onnx_top_k.is_left_to_TVM, (1,)),
}


#: Converters that hand on to TVM's own.
_ON_STOCK: dict[str, Callable[[Node], Any]] = {
    **{name: partial(onnx_broadcast.broadcast, name) for name in onnx_broadcast.NAMES},
    "Concat": onnx_broadcast.concat,
    "ConstantOfShape": onnx_reshape.constant_of_shape,
    "Gemm": onnx_products.gemm,
    "MatMul": onnx_products.matmul,
    "NonMaxSuppression": onnx_boxes.non_max_suppression,
    "Reshape": onnx_reshape.reshape,
    "Resize": onnx_resize.resize,
    "RoiAlign": onnx_boxes.roi_align,
    "Slice": onnx_slice.slice_,
    "Tile": onnx_tile.tile,
    "Unique": onnx_boxes.unique,
}


def install_onnx() -> None:
    """Add the converters to TVM's importer, as soon as it is imported."""
    when_imported(MODULE, _extend)


def uninstall_onnx() -> None:
    """Restore TVM's importer."""
    forget(MODULE)
    if MODULE in sys.modules:
        _restore(sys.modules[MODULE])


def _extend(module: ModuleType) -> None:
    stock = getattr(module, _STOCK, None) or getattr(module, _TABLE)
    setattr(module, _STOCK, stock)

    def convert_map() -> dict[str, Any]:
        table = dict(stock())
        if current_options().enabled:
            table.update(CONVERTERS)
            for name, (convert, is_left, constants) in _SHARED.items():
                table[name] = _Converter(name, convert, table[name], is_left, constants)
            for name, of_node in _ON_STOCK.items():
                table[name] = OnStock(of_node, table[name])
            for name in onnx_constants.INPUTS:
                table[name] = onnx_constants.OfConstants(name, table[name])
            table["Pad"] = OnStock(onnx_pad.pad, table["Pad"])
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


def _is_tensor(value: Any) -> bool:
    """Whether a value is neither a shape nor a single size."""
    return not (isinstance(value, relax.ShapeExpr) or tvm.ir.is_prim_expr(value))
