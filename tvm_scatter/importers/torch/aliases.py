"""Finds the constants of an exported program that are buffers under another name.

A module may reach a registered buffer by a second way, such as the tensors of a cache object.
PyTorch's export without ``strict`` makes a constant of that tensor. The program then writes to the
constant, not to the buffer, and PyTorch cannot decompose it.
"""

from __future__ import annotations

import copy
from typing import Any

from .graphs import copied_graph, with_graph


def with_constants_as_buffers(program: Any) -> Any:
    """The program with each constant that is the memory of a buffer replaced by the buffer.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The program, which is not modified.

    Returns
    -------
    program : torch.export.ExportedProgram
        The new program, or the same one if nothing changes.
    """
    buffers = _buffers_of_constants(program)
    if not buffers:
        return program
    signature = copy.copy(program.graph_signature)
    signature.input_specs = [spec for spec in signature.input_specs if spec.arg.name not in buffers]
    replaced = with_graph(program, _with_replaced_placeholders(program, buffers))
    replaced._graph_signature = signature
    targets = {spec.target for spec in signature.input_specs}
    replaced._constants = {
        name: value for name, value in program.constants.items() if name in targets
    }
    return replaced


def _buffers_of_constants(program: Any) -> dict[str, str]:
    """The names of constants that are buffers, with those of the buffers, both in the graph."""
    values = dict(program.named_buffers())
    specs = program.graph_signature.input_specs
    buffers = {
        _memory(values[spec.target]): spec.arg.name for spec in specs if spec.target in values
    }
    buffers.pop(None, None)
    constants = [spec for spec in specs if spec.kind.name == "CONSTANT_TENSOR"]
    found = {
        spec.arg.name: buffers.get(_memory(program.constants[spec.target])) for spec in constants
    }
    return {constant: buffer for constant, buffer in found.items() if buffer is not None}


def _memory(tensor: Any) -> Any:
    """What two tensors have in common if they are the same memory; nothing for empty ones."""
    import torch

    if tensor.layout != torch.strided or not tensor.numel():
        return None
    return tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _with_replaced_placeholders(program: Any, replacements: dict[str, str]) -> Any:
    graph = copied_graph(program)
    nodes = {node.name: node for node in graph.nodes}
    for name, replacement in replacements.items():
        nodes[name].replace_all_uses_with(nodes[replacement])
        graph.erase_node(nodes[name])
    return graph
