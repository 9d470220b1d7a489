"""Decompositions of operators whose own ones in PyTorch fail or are wrong.

They come before all others. PyTorch has some of its own beside the tables that it can be given; so
a call of such an operator becomes a call of the function here, which PyTorch then traces.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from math import prod
from typing import Any

from .graphs import CALLED, copied_graph, with_graph
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
        if node.target in corrected:
            node.target = _named(corrected[node.target], node.target)
    return with_graph(program, graph).run_decompositions({})


def _corrected() -> dict[Any, Callable[..., Any]]:
    import torch

    aten = torch.ops.aten
    return {
        aten.take.default: take,
        aten.softshrink.default: softshrink,
        aten.upsample_bicubic2d.vec: upsample_bicubic,
        aten.max_unpool2d.default: max_unpool,
        aten.max_unpool3d.default: max_unpool,
        aten.multilabel_margin_loss.default: multilabel_margin_loss,
        aten.multilabel_margin_loss_forward.default: multilabel_margin_loss_forward,
    }


def _named(function: Callable[..., Any], operator: Any) -> Callable[..., Any]:
    """The function, whose parts remember the operator that the model called."""
    from torch.fx import traceback

    def named(*arguments: Any, **keywords: Any) -> Any:
        # Older versions of PyTorch remember nothing of this kind.
        annotate = getattr(traceback, "annotate", nullcontext)
        with annotate({CALLED: str(operator._schema.name)}):
            return function(*arguments, **keywords)

    return named


def take(data: Any, index: Any) -> Any:
    """``take``. PyTorch reads an index without axes back to the host."""
    return data.take(index.reshape(-1)).reshape(index.shape)


def softshrink(data: Any, bound: float = 0.5) -> Any:
    """``softshrink``. PyTorch multiplies by zero, which TVM takes for zero, also of NaN."""
    import torch

    return torch.where(data.abs() <= bound, 0.0, data - torch.sign(data) * bound)


def upsample_bicubic(image: Any, size: Any, corners: bool, factors: Any = None) -> Any:
    """``upsample_bicubic2d``. PyTorch divides by the gaps between pixels, also if there are none.

    So a symbolic size is taken for two or more, of which the first pixels are the same.
    """
    import torch

    resized = torch.ops.aten.upsample_bicubic2d.vec
    if not corners or size is None or all(isinstance(each, int) for each in size):
        return resized(image, size, corners, factors)
    rows, columns = (torch.sym_max(each, 2) for each in size)
    return resized(image, [rows, columns], corners, None)[:, :, : size[0], : size[1]]


def max_unpool(values: Any, positions: Any, output_size: list[Any], *_: Any) -> Any:
    """``max_unpool2d`` and that of 3-D: a scatter into each plane.

    PyTorch decomposes it into a write to all planes as one, where a position beyond its own plane
    is one of another plane.
    """
    axes = len(output_size)
    planes = values.new_zeros((*values.shape[:-axes], prod(output_size)))
    flat = planes.scatter(-1, positions.flatten(-axes), values.flatten(-axes))
    return flat.reshape((*values.shape[:-axes], *output_size))
