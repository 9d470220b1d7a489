"""Sizes of which PyTorch knows that they are equal, and TVM does not.

TVM infers ``min(max(n - 1, 0), n)`` for ``x[:-1]``, and cannot compile a sum with a tensor of
``n - 1`` elements: its shape is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops.expectations import expect_sizes
from tvm_scatter.ops.shapes import same_shape, same_size, static_shape

from .arithmetic import is_tensor

_Table = dict[str, Callable[[Any], Any]]
#: A node, the shape of its tensor, and by axis, counted from the last, whether it is broadcast.
_Operand = tuple[Any, Sequence[Any], dict[int, bool]]


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
    operands = list(_operands(importer, node))
    common = _common_sizes(operands)
    for operand, shape, broadcast in operands:
        wanted = list(shape)
        for at, is_one in broadcast.items():
            known = 1 if is_one else common[at]
            wanted[-at] = shape[-at] if same_size(shape[-at], known) else known
        if not same_shape(shape, wanted):
            name = str(node.target._schema.name).removeprefix("aten::")
            checked = expect_sizes(
                importer.env[operand], shape, wanted, shape=wanted, what="an operand", operator=name
            )
            importer.env[operand] = importer.block_builder.emit(checked)


def _operands(importer: Any, node: Any) -> Iterator[_Operand]:
    for operand in node.all_input_nodes:
        tensor = importer.env.get(operand)
        described = getattr(operand.meta.get("val"), "shape", None)
        if described is None or not is_tensor(tensor) or static_shape(tensor) is None:
            continue
        shape = shape_of(tensor)
        axes = range(1, min(len(shape), len(described)) + 1)
        yield operand, shape, {at: _is_one(described[-at], shape[-at]) for at in axes}


def _is_one(described: Any, size: Any) -> bool:
    """Whether an axis is broadcast. PyTorch can tell from a formula and the range of its sizes."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return (isinstance(size, int) and size == 1) or bool(statically_known_true(described == 1))


def _common_sizes(operands: Sequence[_Operand]) -> dict[int, Any]:
    """The size of each axis: a number if an operand has one, else that of the first operand."""
    common: dict[int, Any] = {}
    for _, shape, broadcast in operands:
        for at, is_one in broadcast.items():
            if is_one:
                continue
            if isinstance(shape[-at], int):
                common[at] = shape[-at]
            common.setdefault(at, shape[-at])
    return common
