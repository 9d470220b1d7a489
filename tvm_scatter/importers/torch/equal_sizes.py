"""Sizes of which PyTorch knows that they are equal, and TVM does not.

TVM infers ``min(max(n - 1, 0), n)`` for ``x[:-1]``, and cannot compile a sum with a tensor of
``n - 1`` elements: its shape is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tvm_scatter.importers.shapes import same_shape, shape_of
from tvm_scatter.ops.expectations import expect_sizes
from tvm_scatter.ops.shapes import same_size, static_shape

from .arithmetic import is_tensor

_Table = dict[str, Callable[[Any], Any]]


def knowing_equal_sizes(importer: Any, table: _Table) -> _Table:
    """The converters, after which operands of elementwise operators have the same sizes."""
    return {name: partial(_converted, importer, convert) for name, convert in table.items()}


def _converted(importer: Any, convert: Callable[[Any], Any], node: Any) -> Any:
    if _is_elementwise(node):
        _agree(importer, node)
    return convert(node)


def _is_elementwise(node: Any) -> bool:
    import torch

    return torch.Tag.pointwise in getattr(node.target, "tags", ())


def _agree(importer: Any, node: Any) -> None:
    """Give operands the sizes of the first one that has them; the run time checks the others."""
    common: dict[int, Any] = {}
    for operand in node.all_input_nodes:
        tensor = importer.env.get(operand)
        described = getattr(operand.meta.get("val"), "shape", None)
        if described is None or not is_tensor(tensor) or static_shape(tensor) is None:
            continue
        shape = list(shape_of(tensor))
        wanted = list(shape)
        for at in range(1, len(shape) + 1):
            if not _is_whole(node, described[-at], at):
                continue
            size = common.setdefault(at, shape[-at])
            wanted[-at] = shape[-at] if same_size(shape[-at], size) else size
        if not same_shape(shape, wanted):
            name = str(node.target._schema.name).removeprefix("aten::")
            checked = expect_sizes(
                tensor, shape, wanted, shape=wanted, what="an operand", operator=name
            )
            importer.env[operand] = importer.block_builder.emit(checked)


def _is_whole(node: Any, size: Any, at: int) -> bool:
    """Whether PyTorch knows that a symbolic size is that of the result, so many axes from the
    last."""
    result = getattr(node.meta.get("val"), "shape", ())
    if isinstance(size, int) or at > len(result) or isinstance(result[-at], int):
        return False
    return bool(size.node.expr == result[-at].node.expr)
