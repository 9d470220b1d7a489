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

from .agreeing_axes import agreeing_axes, broadcasts
from .arithmetic import is_tensor
from .sizes import is_one

_Table = dict[str, Callable[[Any], Any]]
#: A node, the shape of its tensor, and its axes that agree with others, counted from the last: the
#: label of each, and whether it is broadcast.
_Operand = tuple[Any, Sequence[Any], dict[int, tuple[Any, bool]]]


def knowing_equal_sizes(importer: Any, table: _Table) -> _Table:
    """The converters, before which operands get the same sizes where they must have them."""
    return {name: partial(_converted, importer, convert) for name, convert in table.items()}


def _converted(importer: Any, convert: Callable[[Any], Any], node: Any) -> Any:
    _agree(importer, node)
    return convert(node)


def _agree(importer: Any, node: Any) -> None:
    """Give operands the sizes of the first one that has them; the run time checks the others."""
    operands = list(_operands(importer, node))
    common = _common_sizes(operands)
    for operand, shape, axes in operands:
        wanted = list(shape)
        for at, (label, repeated) in axes.items():
            known = 1 if repeated else common[label]
            wanted[at] = shape[at] if same_size(shape[at], known) else known
        if not same_shape(shape, wanted):
            name = str(node.target._schema.name).removeprefix("aten::")
            checked = expect_sizes(
                importer.env[operand], shape, wanted, shape=wanted, what="an operand", operator=name
            )
            importer.env[operand] = importer.block_builder.emit(checked)


def _operands(importer: Any, node: Any) -> Iterator[_Operand]:
    for operand, labels in agreeing_axes(node):
        tensor = importer.env.get(operand)
        described = getattr(operand.meta.get("val"), "shape", None)
        if described is None or not is_tensor(tensor) or static_shape(tensor) is None:
            continue
        shape, may_be_one = shape_of(tensor), broadcasts(node)
        yield (
            operand,
            shape,
            {
                at: (label, may_be_one and is_one(described[at], shape[at]))
                for at, label in labels.items()
                if -at <= len(shape)
            },
        )


def _common_sizes(operands: Sequence[_Operand]) -> dict[Any, Any]:
    """The size of each label: a number if an operand has one, else that of the first operand."""
    common: dict[Any, Any] = {}
    for _, shape, axes in operands:
        for at, (label, repeated) in axes.items():
            if repeated:
                continue
            if isinstance(shape[at], int):
                common[label] = shape[at]
            common.setdefault(label, shape[at])
    return common
