"""ONNX operators that compute sizes from the shapes of tensors, where these are symbolic.

TVM's importer keeps a shape as expressions, but gives it to a dozen operators only, by their names,
and refuses all others. torch.onnx also writes ``Max``, ``Mul``, ``ScatterElements`` and others of
shapes. Such a node takes the name of an operator that is given shapes, and its own name becomes an
attribute. The converter here then computes with the expressions, or makes tensors of them.
"""

from __future__ import annotations

import operator as python
from collections.abc import Callable
from functools import reduce
from typing import Any

import tvm
from tvm import relax, tirx

from tvm_scatter.problem.sizes import as_expression

#: An operator that TVM's importer gives shapes.
STAND_IN = "Cast"
_OPERATOR = "tvm_scatter_operator"
#: Operators that TVM's importer gives shapes. Here a few are done before it is asked.
_GIVEN = frozenset(
    ("Reshape", "Resize", "ConstantOfShape", "Gather", "Slice", "Shape", "Expand", "Concat",
     "Equal", "Where", "Cast", "CastLike", "Squeeze")
)  # fmt: skip
#: Operators that have no converter of their own, or whose results are no tensors.
_LEFT = frozenset(
    ("If", "Loop", "Scan", "Constant", "Optional", "OptionalGetElement", "SequenceConstruct",
     "SequenceEmpty", "SequenceErase", "SequenceInsert", "ConcatFromSequence", "SplitToSequence")
)  # fmt: skip

#: A size, or several of them: numbers and expressions.
Sizes = list[Any]


def renamed(graph: Any) -> Any:
    """The graph, or a copy in which nodes that shapes may reach have the name of another operator.

    Parameters
    ----------
    graph : onnx.GraphProto
        The graph of a model.
    """
    places = _reached(graph)
    if not places:
        return graph
    copy = type(graph)()
    copy.CopyFrom(graph)
    for place in places:
        node = copy.node[place]
        node.attribute.add(name=_OPERATOR, type=3, s=node.op_type.encode())
        node.op_type = STAND_IN
    return copy


def _reached(graph: Any) -> list[int]:
    """The positions of nodes that a shape may reach."""
    shapes: set[str] = set()
    places = []
    for place, node in enumerate(graph.node):
        read = node.input[:1] if node.op_type in ("Expand", "Reshape", "Gather") else node.input
        if node.op_type == "Shape":
            shapes.update(node.output)
        elif node.op_type not in _LEFT and not shapes.isdisjoint(read):
            if node.op_type in _RULES or node.op_type not in _GIVEN:
                places.append(place)
            if node.op_type in _RULES or node.op_type in _GIVEN or node.op_type == "Unsqueeze":
                shapes.update(node.output)
    return places


class StandIn:
    """The converter of the nodes that were renamed, and of those that had the name before.

    Parameters
    ----------
    table : dict of str to object
        The converters of all operators.
    """

    def __init__(self, table: dict[str, Any]) -> None:
        self.table = dict(table)

    def get_converter(self, opset: int) -> Callable[..., Any]:
        """The function that TVM calls for nodes of an opset."""

        def convert(bb: Any, inputs: Any, attributes: dict[str, Any], params: Any) -> Any:
            name = attributes.pop(_OPERATOR, STAND_IN.encode()).decode()
            if name in _RULES:
                result = _RULES[name](bb, name, inputs, attributes)
                if result is not None:
                    return result
            if name not in _GIVEN:
                inputs = type(inputs)([_tensor(bb, name, each) for each in inputs])
            return self.table[name].get_converter(opset)(bb, inputs, attributes, params)

        return convert


def _tensor(bb: Any, name: str, value: Any) -> Any:
    """A shape as a tensor, and any other value as it is."""
    if name == "TopK":
        return value
    if isinstance(getattr(value, "ty", None), relax.ShapeType):
        return bb.emit(relax.op.shape_to_tensor(value))
    return value


def _elementwise(bb: Any, name: str, inputs: Any, attributes: dict[str, Any]) -> Any:
    operands = [sizes for each in inputs if (sizes := _sizes(each)) is not None]
    # Of numbers and single expressions TVM's importer knows sums and products.
    known = any(map(_is_shape, inputs)) or name in ("Max", "Min")
    if name == "Mod" and (attributes.get("fmod", 0) or any(0 in each for each in operands[1:])):
        return None
    length = max(map(len, operands), default=0)
    if not known or len(operands) < len(inputs) or any(len(x) not in (1, length) for x in operands):
        return None
    rows = [sizes if len(sizes) == length else sizes * length for sizes in operands]
    results = [reduce(_FUNCTIONS[name], column) for column in zip(*rows, strict=True)]
    return (
        relax.ShapeExpr(results) if any(map(_is_vector, inputs)) else relax.prim_value(results[0])
    )


def _gather(bb: Any, name: str, inputs: Any, attributes: dict[str, Any]) -> Any:
    data, at = inputs
    if not _is_shape(data) or not _is_vector(at) or not isinstance(at, tvm.ir.GenericConst):
        return None
    sizes = _sizes(data) or []
    places = at.value.numpy()
    if not all(-len(sizes) <= place < len(sizes) for place in places):
        return None
    return relax.ShapeExpr([sizes[place] for place in places])


def _scatter(bb: Any, name: str, inputs: Any, attributes: dict[str, Any]) -> Any:
    """A shape in which some sizes are replaced."""
    data, at, updates = inputs
    sizes, news = _sizes(data), _sizes(updates)
    constant = isinstance(at, tvm.ir.GenericConst)
    if not (_is_shape(data) and constant and _is_vector(at) and news and sizes):
        return None
    places = at.value.numpy()
    fit = len(places) <= len(news) and all(-len(sizes) <= at < len(sizes) for at in places)
    if not fit or attributes.get("reduction", b"none") != b"none":
        return None
    for place, new in zip(places, news, strict=False):
        sizes[place] = new
    return relax.ShapeExpr(sizes)


def _identity(bb: Any, name: str, inputs: Any, attributes: dict[str, Any]) -> Any:
    return inputs[0] if _sizes(inputs[0]) is not None else None


def _reshape(bb: Any, name: str, inputs: Any, attributes: dict[str, Any]) -> Any:
    """A single size as a vector. TVM's importer reshapes shapes, but no single expressions."""
    data, shape = inputs
    single = tvm.ir.is_prim_expr(data) and isinstance(shape, tvm.ir.GenericConst)
    if single and shape.value.numpy().tolist() in ([1], [-1]):
        return relax.ShapeExpr([data])
    return None


def _where(bb: Any, name: str, inputs: Any, attributes: dict[str, Any]) -> Any:
    """A choice between a tensor and a single size, which TVM's importer takes for a tensor."""
    if not any(map(tvm.ir.is_prim_expr, inputs)):
        return None
    tensors = []
    for each in inputs:
        shape = relax.ShapeExpr([each]) if tvm.ir.is_prim_expr(each) else each
        tensor = _tensor(bb, name, shape)
        tensors.append(tensor if shape is each else bb.emit(relax.op.reshape(tensor, ())))
    return relax.op.where(*tensors)


def _concat(bb: Any, name: str, inputs: Any, attributes: dict[str, Any]) -> Any:
    """Sizes behind the entries of a tensor, such as the number of words behind offsets of bags."""
    if all(_sizes(each) is not None for each in inputs):
        return None
    tensors = [_tensor(bb, name, each) for each in inputs]
    return relax.op.concat(relax.Tuple(tensors), axis=int(attributes["axis"]))


_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": python.add,
    "Sub": python.sub,
    "Mul": python.mul,
    "Mod": lambda left, right: _of_two(python.mod, tirx.floormod, left, right),
    "Max": lambda left, right: _of_two(max, tirx.max, left, right),
    "Min": lambda left, right: _of_two(min, tirx.min, left, right),
}
_RULES: dict[str, Callable[[Any, str, Any, dict[str, Any]], Any]] = {
    **dict.fromkeys(_FUNCTIONS, _elementwise),
    "Concat": _concat,
    "Gather": _gather,
    "Identity": _identity,
    "Reshape": _reshape,
    "ScatterElements": _scatter,
    "Where": _where,
}


def _of_two(of_numbers: Any, of_expressions: Any, left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        return of_numbers(left, right)
    return of_expressions(as_expression(left), as_expression(right))


def _sizes(value: Any) -> Sizes | None:
    """The sizes that a value holds, if they are known as numbers or expressions."""
    if isinstance(value, relax.ShapeExpr):
        return [_number(size) for size in value]
    if isinstance(value, tvm.ir.GenericConst):
        array = value.value.numpy()
        return [int(size) for size in array.reshape(-1)] if array.dtype == "int64" else None
    return [_number(value)] if tvm.ir.is_prim_expr(value) else None


def _number(size: Any) -> Any:
    return int(size) if isinstance(size, tirx.IntImm) else size


def _is_shape(value: Any) -> bool:
    return isinstance(value, relax.ShapeExpr)


def _is_vector(value: Any) -> bool:
    return _is_shape(value) or (isinstance(value, tvm.ir.GenericConst) and value.ty.ndim == 1)
