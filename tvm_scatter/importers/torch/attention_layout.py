"""Gives the result of attention the layout in memory that the rest of a program was exported with.

PyTorch decomposes ``scaled_dot_product_attention`` into an operator whose result has other strides.
A ``view`` behind it, which GPT-2 has, may then be impossible, and the decomposition fails.
"""

from __future__ import annotations

import copy
from typing import Any

_ATTENTION = "scaled_dot_product_attention.default"


def with_contiguous_attention(program: Any) -> Any:
    """The program with a contiguous copy behind each attention, which TVM leaves out again.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The program, which is not modified.

    Returns
    -------
    program : torch.export.ExportedProgram
        The new program, or the same one if it has no attention.
    """
    if not any(map(_is_attention, program.graph.nodes)):
        return program
    changed = copy.copy(program)
    changed._graph_module = _with_copies(program)
    return changed


def _is_attention(node: Any) -> bool:
    return getattr(node.target, "__name__", "") == _ATTENTION


def _with_copies(program: Any) -> Any:
    import torch

    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(program.graph, {}))
    for node in filter(_is_attention, list(graph.nodes)):
        with graph.inserting_after(node):
            contiguous = graph.call_function(
                torch.ops.aten.clone.default,
                (node,),
                {"memory_format": torch.contiguous_format},
            )
        node.replace_all_uses_with(contiguous, lambda user, own=contiguous: user is not own)
        contiguous.meta = copy.copy(node.meta)
    return torch.fx.GraphModule(program.graph_module, graph)
