"""Converters of ONNX operators that hand on to TVM's own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

#: The module of TVM's importer, which is imported when a user does.
MODULE = "tvm.relax.frontend.onnx.onnx_frontend"


def constant_of(value: Any, params: Any) -> Any:
    """A weight that TVM's importer keeps as a parameter as the constant that it is; else the value.

    Parameters
    ----------
    value : relax.Expr or None
        An input of a node.
    params : Any
        The weights that TVM's importer keeps.
    """
    return sys.modules[MODULE].get_constant(value, params)


@dataclass(frozen=True)
class Node:
    """A node of an operator that TVM's importer has.

    Attributes
    ----------
    bb : relax.BlockBuilder
        Where it is emitted.
    inputs : sequence of relax.Expr or None
        Its inputs, as TVM's converters take them.
    attributes : dict
        Its attributes.
    params : Any
        The weights that TVM's importer keeps.
    opset : int
        The opset that it is of.
    stock : callable
        TVM's own converter.
    """

    bb: Any
    inputs: Any
    attributes: dict[str, Any]
    params: Any
    opset: int
    stock: Callable[..., Any]

    def constant(self, at: int) -> Any:
        """An input. A weight that the importer keeps as a parameter is a constant."""
        return constant_of(self.inputs[at], self.params)

    def by_stock(self, inputs: Iterable[Any] | None = None) -> Any:
        """What TVM's own converter makes of the node, or of other inputs."""
        given = self.inputs if inputs is None else type(self.inputs)(inputs)
        return self.stock(self.bb, given, self.attributes, self.params)


@dataclass(frozen=True)
class OnStock:
    """An entry of TVM's table.

    Attributes
    ----------
    convert : callable
        Takes a :class:`Node`.
    stock : object
        TVM's entry.
    """

    convert: Callable[[Node], Any]
    stock: Any

    def get_converter(self, opset: int) -> Callable[..., Any]:
        """The function that TVM calls for nodes of an opset."""
        stock = self.stock.get_converter(opset)

        def convert(bb: Any, inputs: Any, attributes: dict[str, Any], params: Any) -> Any:
            return self.convert(Node(bb, inputs, attributes, params, opset, stock))

        return convert
