"""Decompositions of operators whose own ones in PyTorch fail or are wrong.

They come before all others. PyTorch has some of its own beside the tables that it can be given; so
a call of such an operator becomes a call of the function here, which PyTorch then traces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .graphs import copied_graph, with_graph
from .margins import multilabel_margin_loss, multilabel_margin_loss_forward


def with_corrected_decompositions(program: Any) -> Any:
    """The program with such operators decomposed, or the same one if it has none.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The program, which is not modified.
    """
    corrected = _corrected()
    if not any(node.target in corrected for node in program.graph.nodes):
        return program
    graph = copied_graph(program)
    for node in graph.nodes:
        node.target = corrected.get(node.target, node.target)
    return with_graph(program, graph).run_decompositions({})


def _corrected() -> dict[Any, Callable[..., Any]]:
    import torch

    aten = torch.ops.aten
    return {
        aten.take.default: take,
        aten.multilabel_margin_loss.default: multilabel_margin_loss,
        aten.multilabel_margin_loss_forward.default: multilabel_margin_loss_forward,
    }


def take(data: Any, index: Any) -> Any:
    """``take``. PyTorch reads an index without axes back to the host."""
    return data.take(index.reshape(-1)).reshape(index.shape)
