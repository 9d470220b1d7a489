"""Inputs and results of PyTorch programs that are no tensors: numbers, texts and ``None``."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from tvm import relax, tirx
from tvm.ir import PrimType, StringImm

from .divisors import without_zero_divisors
from .graphs import copied_graph, with_graph

#: PyTorch's class for an integer that varies.
_NUMBER = "SymIntArgument"


def without_constant_inputs(program: Any) -> Any:
    """The program without its inputs that have one value, which PyTorch writes where it is used."""
    constants = _inputs(program, "ConstantArgument")
    if not constants:
        return program
    graph = copied_graph(program)
    for node in list(graph.nodes):
        if node.op == "placeholder" and node.name in constants:
            graph.erase_node(node)
    changed = with_graph(program, graph)
    changed._graph_signature = copy.copy(program.graph_signature)
    changed._graph_signature.input_specs = [
        spec for spec in program.graph_signature.input_specs if spec.arg.name not in constants
    ]
    return changed


def with_numbers_as_shapes(program: Any) -> Any:
    """The program with its inputs that are integers, which vary, described as TVM reads them.

    A Relax function takes such a number as a shape of one size. TVM's importer asks what is
    described for a shape and a type.
    """
    numbers = _inputs(program, _NUMBER)
    if not numbers:
        return program
    graph = copied_graph(program)
    for node in graph.nodes:
        if node.op == "placeholder" and node.name in numbers:
            node.meta["tensor_meta"] = _one_size(node.meta["val"])
    return with_graph(program, graph)


def shapes_of_numbers(program: Any, inputs: Mapping[str, relax.Var]) -> dict[str, relax.Var]:
    """The inputs of a Relax function, with the numbers of :func:`with_numbers_as_shapes`."""
    numbers = _inputs(program, _NUMBER)
    return {
        name: relax.Var(name, relax.ShapeType(list(each.ty.shape.values)))
        if name in numbers
        else each
        for name, each in inputs.items()
    }


def values_of_inputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What a node of the graph that is an input stands for: a tensor, or a number itself."""
    return {
        name: each.ty.values[0] if isinstance(each.ty, relax.ShapeType) else each
        for name, each in inputs.items()
    }


def expressions_of(results: Any) -> Any:
    """The results of a graph, in which numbers and texts are expressions of Relax.

    A size that is a result, and divides by zero, would end the process.
    """
    match results:
        case list() | tuple():
            return [expressions_of(each) for each in results]
        case bool():
            return tirx.const(results, "bool")
        case int():
            return tirx.IntImm("int64", results)
        case float():
            return tirx.FloatImm("float64", results)
        case str():
            return StringImm(results)
    is_number = isinstance(getattr(results, "ty", None), PrimType)
    return without_zero_divisors(results) if is_number else results


def _inputs(program: Any, kind: str) -> set[str]:
    """The names of the inputs that PyTorch describes by a class of this name."""
    specs = program.graph_signature.input_specs
    return {spec.arg.name for spec in specs if type(spec.arg).__name__ == kind}


def _one_size(number: Any) -> Any:
    import torch

    return SimpleNamespace(shape=(number,), dtype=torch.int64)
