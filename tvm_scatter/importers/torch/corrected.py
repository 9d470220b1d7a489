"""Decompositions of operators whose own ones in PyTorch fail or are wrong.

They come before all others. PyTorch has some of its own beside the tables that it can be given; so
a call of such an operator becomes a call of the function here, which PyTorch then traces.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from math import prod
from typing import Any

from .graphs import CALLED, copied_graph, with_graph, writes_in_place
from .margins import multilabel_margin_loss, multilabel_margin_loss_forward
from .recurrent_cells import (
    gru_cell,
    gru_cell_with_weights,
    lstm_cell,
    lstm_cell_with_weights,
)


def with_corrected_decompositions(program: Any) -> Any:
    """The program with such operators decomposed, or the same one if it has none.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The program, which is not modified.
    """
    corrected = _corrected()
    if any(map(writes_in_place, program.graph.nodes)):
        corrected |= _corrected_beside_writes()
    if any(map(_is_on_gpu, program.graph.nodes)):
        corrected |= _corrected_on_gpus()
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
    resizes = aten.upsample_linear1d.vec, aten.upsample_bicubic2d.vec, aten.upsample_trilinear3d.vec
    return {
        aten.take.default: take,
        aten.softshrink.default: softshrink,
        **{each: upsampled(each) for each in resizes},
        aten.max_unpool2d.default: max_unpool,
        aten.max_unpool3d.default: max_unpool,
        aten.multilabel_margin_loss.default: multilabel_margin_loss,
        aten.multilabel_margin_loss_forward.default: multilabel_margin_loss_forward,
    }


def _corrected_beside_writes() -> dict[Any, Callable[..., Any]]:
    import torch

    return {torch.ops.aten.unbind.int: unbind}


def _corrected_on_gpus() -> dict[Any, Callable[..., Any]]:
    import torch

    aten = torch.ops.aten
    # PyTorch decomposes cells into operators whose shapes it does not know: of a GRU's without a
    # GPU, of an LSTM's without biases.
    return {
        aten.gru_cell.default: gru_cell_with_weights,
        aten.lstm_cell.default: lstm_cell_with_weights,
        aten._thnn_fused_gru_cell.default: gru_cell,
        aten._thnn_fused_lstm_cell.default: lstm_cell,
    }


def _is_on_gpu(node: Any) -> bool:
    return not getattr(node.meta.get("val"), "is_cpu", True)


def _named(function: Callable[..., Any], operator: Any) -> Callable[..., Any]:
    """The function, whose parts remember the operator that the model called."""
    from torch.fx import traceback

    def named(*arguments: Any, **keywords: Any) -> Any:
        # Older versions of PyTorch remember nothing of this kind.
        annotate = getattr(traceback, "annotate", nullcontext)
        with annotate({CALLED: str(operator._schema.name)}):
            return function(*arguments, **keywords)

    return named


def unbind(data: Any, dim: int = 0) -> tuple[Any, ...]:
    """``unbind``. Where a part is written to, PyTorch forgets that sizes of the others vary."""
    return tuple(data.select(dim, at) for at in range(data.shape[dim]))


def take(data: Any, index: Any) -> Any:
    """``take``. PyTorch reads an index without axes back to the host."""
    return data.take(index.reshape(-1)).reshape(index.shape)


def softshrink(data: Any, bound: float = 0.5) -> Any:
    """``softshrink``. PyTorch multiplies by zero, which TVM takes for zero, also of NaN."""
    import torch

    return torch.where(data.abs() <= bound, 0.0, data - torch.sign(data) * bound)


def upsampled(operator: Any) -> Callable[..., Any]:
    """``upsample_bicubic2d`` and its kin. PyTorch divides by gaps between pixels, also by none.

    So a symbolic size is taken for two or more, of which the first pixels are the same.
    """
    import torch

    def upsample(image: Any, size: Any, corners: bool, factors: Any = None) -> Any:
        sizes = size
        if size is None:
            axes = image.shape[-len(factors) :]
            scaled = (each * factor for each, factor in zip(axes, factors, strict=True))
            sizes = [torch.sym_int(each) for each in scaled]
        if not corners or all(isinstance(each, int) for each in sizes):
            return operator(image, size, corners, factors)
        image = operator(image, [torch.sym_max(each, 2) for each in sizes], corners, None)
        for axis, each in enumerate(sizes):
            image = image.narrow(axis + 2, 0, each)
        return image

    return upsample


def max_unpool(values: Any, positions: Any, output_size: list[Any], *_: Any) -> Any:
    """``max_unpool2d`` and that of 3-D: a scatter into each plane.

    PyTorch decomposes it into a write to all planes as one, where a position beyond its own plane
    is one of another plane.
    """
    axes = len(output_size)
    planes = values.new_zeros((*values.shape[:-axes], prod(output_size)))
    flat = planes.scatter(-1, positions.flatten(-axes), values.flatten(-axes))
    return flat.reshape((*values.shape[:-axes], *output_size))
