"""Gives the result of attention the layout in memory that the rest of a program was exported with.

PyTorch decomposes ``scaled_dot_product_attention`` into an operator whose result has other strides.
A ``view`` behind it, which GPT-2 has, may then be impossible, and the decomposition fails.
"""

from __future__ import annotations

import copy
from typing import Any

from .fused_attention import FUSED_ATTENTION
from .graphs import copied_graph, name_of, with_graph

#: An operator, its arguments behind the first one, and those by name.
_Step = tuple[Any, tuple[Any, ...], dict[str, Any]]

_ATTENTION = "scaled_dot_product_attention.default"
#: What a program that is traced with its gradients calls instead. They have several results.
_ON_CPU = "_scaled_dot_product_flash_attention_for_cpu.default"
_GRADIENTS_ON_CPU = "_scaled_dot_product_flash_attention_for_cpu_backward.default"


def with_contiguous_attention(program: Any) -> Any:
    """The program with a copy in that layout behind each attention, which TVM leaves out again.

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
    graph = copied_graph(program)
    for node in filter(_is_attention, list(graph.nodes)):
        copied = _copied(graph, node, _has_heads_inside(node))
        copied.meta = copy.copy(node.meta)
    return with_graph(program, graph)


def _is_attention(node: Any) -> bool:
    """Whether a node has queries' results or gradients, with an axis of heads."""
    if name_of(node) == _ATTENTION:
        return True
    return name_of(node) == "getitem" and (name_of(node.args[0]), node.args[1]) in (
        (_ON_CPU, 0),
        *((f"{name}.default", 0) for name in FUSED_ATTENTION),
        *((_GRADIENTS_ON_CPU, which) for which in range(3)),
    )


def _has_heads_inside(node: Any) -> bool:
    """Whether the heads of one position lie beside each other, as PyTorch's CPU kernel writes."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    strides = node.meta["val"].stride()
    return len(strides) > 3 and statically_known_true(strides[-3] < strides[-2])


def _copied(graph: Any, node: Any, heads_inside: bool) -> Any:
    """A copy behind a node, which all others read instead of it."""
    import torch

    aten = torch.ops.aten
    clone: _Step = (aten.clone.default, (), {"memory_format": torch.contiguous_format})
    swap: _Step = (aten.transpose.int, (-3, -2), {})
    steps = [swap, clone, swap] if heads_inside else [clone]
    others, result = list(node.users), node
    for target, arguments, named in steps:
        with graph.inserting_after(result):
            result = graph.call_function(target, (result, *arguments), named)
    for user in others:
        user.replace_input_with(node, result)
    return result
