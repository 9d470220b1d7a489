"""What an ONNX graph computes from shapes alone: sizes, pads, scatters into shapes, and branches.

torch.onnx's older exporter computes even constant pads. It writes ``Size(Shape(x))`` for a rank,
branches on it, and scatters into a shape. TVM's importer keeps shapes apart from tensors and
refuses such nodes. Where the result is known, a constant takes their place, and a branch that it
chooses takes the place of the ``If``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

#: Nodes that are replaced by a constant.
_REPLACED = ("Size", "ScatterElements", "ScatterND")
#: Nodes that are computed on the way to them.
_COMPUTED = frozenset(
    (*_REPLACED, "Add", "Cast", "Concat", "ConstantOfShape", "Equal", "Gather", "Identity", "Mul",
     "Not", "Reshape", "Shape", "Slice", "Squeeze", "Transpose", "Unsqueeze", "Where")
)  # fmt: skip
#: Larger constants are no shapes.
_MOST_ELEMENTS = 64
#: ONNX infers the shapes of no larger model.
_MOST_BYTES = 2**31 - 1


def folded(graph: Any, opset: int) -> Any:
    """The graph, or a copy in which scatters of shapes and the like are constants.

    Parameters
    ----------
    graph : onnx.GraphProto
        The graph of a model.
    opset : int
        The version of ONNX's operators.
    """
    if not _may_change(graph) or graph.ByteSize() > _MOST_BYTES:
        return graph
    return _Folding(graph, opset).result()


def _may_change(graph: Any) -> bool:
    """Whether a shape reaches a scatter, pads are computed, a branch taken, or a size asked for."""
    if not _computed_pads(graph).isdisjoint(name for node in graph.node for name in node.output):
        return True
    shapes = {name for node in graph.node if node.op_type == "Shape" for name in node.output}
    return any(
        node.op_type in ("Size", "If")
        or (node.op_type in _REPLACED and not shapes.isdisjoint(node.input))
        for node in graph.node
    )


def _computed_pads(graph: Any) -> set[str]:
    """The pads that are no initializers: an input of a node since opset 11."""
    given = {each.name for each in (*graph.initializer, *graph.input)}
    pads = {node.input[1] for node in graph.node if node.op_type == "Pad" and len(node.input) > 1}
    constants = {node.output[0] for node in graph.node if node.op_type == "Constant"}
    return pads - given - constants


class _Folding:
    def __init__(self, graph: Any, opset: int) -> None:
        from onnx import helper, shape_inference

        self.opset = opset
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        self.graph = shape_inference.infer_shapes(model).graph
        self.shapes = {
            info.name: shape
            for info in (*self.graph.input, *self.graph.value_info, *self.graph.output)
            if (shape := _static_shape(info)) is not None
        }
        self.pads = _computed_pads(graph)
        self.known: dict[str, Any] = {}
        self.nodes: list[Any] = []

    def result(self) -> Any:
        nodes = list(self.graph.node)
        for node in nodes:
            self._visit(node)
        del self.graph.node[:]
        self.graph.node.extend(self.nodes)
        return self.graph

    def _visit(self, node: Any) -> None:
        from onnx import helper, numpy_helper

        if node.op_type == "If" and node.input[0] in self.known:
            self._take_branch(node)
            return
        value = self._value(node)
        if value is not None:
            self.known[node.output[0]] = value
            if node.op_type in _REPLACED or node.output[0] in self.pads:
                tensor = numpy_helper.from_array(value)
                node = helper.make_node("Constant", [], list(node.output), value=tensor)
        self.nodes.append(node)

    def _value(self, node: Any) -> Any:
        """What a node computes, if it is known and small."""
        from onnx import helper
        from onnx.reference import ReferenceEvaluator

        given: tuple[Any, ...] = ()
        if node.op_type == "Constant":
            pass
        elif node.op_type in ("Shape", "Size") and node.input[0] in self.shapes:
            # Only the shape matters.
            given = (np.broadcast_to(np.int8(0), self.shapes[node.input[0]]),)
        elif node.op_type in _COMPUTED and all(name in self.known for name in node.input if name):
            given = tuple(self.known[name] for name in node.input if name)
        else:
            return None
        names = [name for name in node.input if name]
        inputs = [helper.make_tensor_value_info(name, 0, None) for name in dict.fromkeys(names)]
        outputs = [helper.make_tensor_value_info(name, 0, None) for name in node.output]
        graph = helper.make_graph([node], "node", inputs, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        (value,) = ReferenceEvaluator(model).run(None, dict(zip(names, given, strict=True)))
        value = np.asarray(value)
        return value if value.size <= _MOST_ELEMENTS else None

    def _take_branch(self, node: Any) -> None:
        """The nodes of the branch that is known to be taken, instead of the ``If``."""
        from onnx import helper

        wanted = "then_branch" if bool(self.known[node.input[0]]) else "else_branch"
        (branch,) = (each.g for each in node.attribute if each.name == wanted)
        self.graph.initializer.extend(branch.initializer)
        for each in branch.node:
            self._visit(each)
        for info, output in zip(branch.output, node.output, strict=True):
            self._visit(helper.make_node("Identity", [info.name], [output]))


def _static_shape(info: Any) -> tuple[int, ...] | None:
    """The shape of a value, if all of its sizes are numbers."""
    kind = info.type.tensor_type
    if not kind.HasField("shape"):
        return None
    sizes = [size.dim_value if size.HasField("dim_value") else -1 for size in kind.shape.dim]
    return tuple(sizes) if all(size >= 0 for size in sizes) else None
