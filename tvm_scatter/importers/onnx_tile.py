"""ONNX's ``Tile`` as often as the run time says.

TVM multiplies the sizes where they are numbers in a tensor. A product beyond int64 wraps there, and
the result has another size without an error.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import te, tirx

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.problem.sizes import as_expression

from .onnx_sizes import sizes_in
from .onnx_stock import Node


def tile(node: Node) -> Any:
    """TVM's own converter, if the numbers of repeats are constant."""
    repeats = node.constant(1)
    if isinstance(repeats, tvm.ir.GenericConst):
        return node.by_stock()
    data = node.bb.normalize(node.inputs[0])
    shape, counts = shape_of(data), sizes_in(node.bb, "Tile", repeats)
    rank = max(len(shape), len(counts))
    sizes = [_one(rank - len(shape)) + list(shape), _one(rank - len(counts)) + counts]
    products = [as_expression(size * count) for size, count in zip(*sizes, strict=True)]
    return node.bb.emit_te(_tiled, data, products, primfunc_name_hint="tile")


def _one(count: int) -> list[Any]:
    return [1] * count


def _tiled(data: te.Tensor, sizes: Any) -> te.Tensor:
    def element(*at: Any) -> Any:
        places = at[len(at) - len(data.shape) :]
        pairs = zip(places, data.shape, strict=True)
        return data(*(tirx.floormod(place.astype("int64"), size) for place, size in pairs))

    return te.compute(list(sizes), element, name="tile")
