"""What computes a value of an ONNX graph, compared with patterns.

A pattern is a number, which a constant of one element equals; a name, which stands for any value,
for the same one wherever it occurs; a tuple of an operator and the patterns of its operands; or a
list of patterns, one of which must match. ``Identity`` and ``CastLike`` are looked through. Axes
and keepdims are operands here, whether an opset has them as inputs or as attributes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

Pattern = Any
Found = dict[str, str]

_SEEN_THROUGH = ("Identity", "CastLike")
_REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax")
_TO_THE_END = 2**31 - 1


class Terms:
    """The values of a graph and of all graphs inside: names are unique among them.

    Parameters
    ----------
    graph : onnx.GraphProto
        The graph of a model.
    """

    def __init__(self, graph: Any) -> None:
        self.producers: dict[str, tuple[Any, int]] = {}
        self.tensors: dict[str, Any] = {}
        for each in graphs_in(graph):
            self.tensors.update((tensor.name, tensor) for tensor in each.initializer)
            for node in each.node:
                self.producers.update((name, (node, at)) for at, name in enumerate(node.output))

    def plain(self, name: str) -> str:
        """The value of which a value is a copy."""
        while name in self.producers and self.producers[name][0].op_type in _SEEN_THROUGH:
            name = self.producers[name][0].input[0]
        return name

    def constant(self, name: str) -> Any:
        """The array that a value is, or None."""
        from onnx import numpy_helper

        name = self.plain(name)
        if name in self.tensors:
            return numpy_helper.to_array(self.tensors[name])
        node, _ = self.producers.get(name, (None, 0))
        if node is None or node.op_type != "Constant":
            return None
        (attribute,) = node.attribute
        if attribute.name == "value":
            return numpy_helper.to_array(attribute.t)
        if attribute.name in ("value_int", "value_ints", "value_float", "value_floats"):
            from onnx import helper

            return np.asarray(helper.get_attribute_value(attribute))
        return None

    def matches(self, pattern: Pattern, name: str, found: Found) -> bool:
        """Whether a value is computed as a pattern says; ``found`` takes what names stand for."""
        if isinstance(pattern, list):
            return any(self._matches_or_forgets(each, name, found) for each in pattern)
        if isinstance(pattern, str):
            return self.plain(found.setdefault(pattern, name)) == self.plain(name)
        if isinstance(pattern, int):
            value = self.constant(name)
            return value is not None and value.size == 1 and value.item() == pattern
        operator, *patterns = pattern
        node, output = self.producers.get(self.plain(name), (None, 0))
        if node is None or node.op_type != operator:
            return False
        operands = self._operands(node, output)
        return len(operands) == len(patterns) and all(
            self._operand_matches(*each, found) for each in zip(patterns, operands, strict=True)
        )

    def _matches_or_forgets(self, pattern: Pattern, name: str, found: Found) -> bool:
        tried = dict(found)
        if not self.matches(pattern, name, tried):
            return False
        found.update(tried)
        return True

    def _operand_matches(self, pattern: Pattern, operand: Any, found: Found) -> bool:
        if isinstance(operand, str):
            return self.matches(pattern, operand, found)
        return isinstance(pattern, int) and bool(operand == pattern)

    def _operands(self, node: Any, output: int) -> list[Any]:
        """The operands of a node: names of values, and numbers that attributes say."""
        from onnx import helper

        said = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        given = list(node.input)
        if node.op_type == "If":
            branches = (said["then_branch"], said["else_branch"])
            return [*given, *(branch.output[output].name for branch in branches)]
        if node.op_type in ("Gather", "Concat", "ScatterElements", "ConcatFromSequence"):
            return [*given, said.get("axis", 0)]
        if node.op_type in _REDUCTIONS:
            axes = said.get("axes", given[1:])
            return [given[0], *axes, said.get("keepdims", 1)]
        if node.op_type == "Unsqueeze":
            return [given[0], *said.get("axes", given[1:])]
        if node.op_type == "Slice":
            if "axes" in said or not self._slices_rows(given):
                return []
            return given[:3]
        return given

    def _slices_rows(self, given: list[str]) -> bool:
        """Whether a slice is one of the first axis, in steps of one."""
        optional = zip(given[3:], (0, 1), strict=False)
        return all(not name or self.matches(each, name, {}) for name, each in optional)


def graphs_in(graph: Any) -> Iterator[Any]:
    """A graph, and the bodies and branches of its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs_in(attribute.g)


def is_end(value: Any) -> bool:
    """Whether a constant is so large that a slice up to it has no end."""
    return value is not None and value.size == 1 and bool(value.item() >= _TO_THE_END)
