"""Operators that PyTorch decomposes nowhere, such as gradients, with their decompositions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .attention import attention_backward
from .distance_gradients import cdist_backward, pdist_backward
from .fused_attention import attention_decompositions
from .grid_sample import grid_sample, grid_sample_backward
from .histograms import (
    edges_of_bins,
    histogram,
    histogram_between,
    histogramdd,
    histogramdd_between,
)
from .margins import multi_margin_loss_backward, multilabel_margin_loss_backward
from .recurrent_cells import gru_cell, lstm_cell
from .segment_gradients import segment_reduce_backward
from .trilinear import bilinear, trilinear


def decompositions() -> dict[Any, Callable[..., Any]]:
    """By operator, functions in PyTorch's own operators.

    Gradients of attention are without dropout.
    """
    import torch

    aten = torch.ops.aten
    return {
        **attention_decompositions(),
        aten.grid_sampler_2d_backward.default: grid_sample_backward,
        aten.grid_sampler_3d_backward.default: grid_sample_backward,
        aten.grid_sampler_3d.default: grid_sample,
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default: attention_backward,
        aten._cdist_backward.default: cdist_backward,
        aten._pdist_backward.default: pdist_backward,
        aten.histogram.bin_ct: histogram,
        aten.histogram.bins_tensor: histogram_between,
        aten._histogramdd_bin_edges.default: edges_of_bins,
        aten._histogramdd_from_bin_cts.default: histogramdd,
        aten._histogramdd_from_bin_tensors.default: histogramdd_between,
        aten.embedding_renorm.default: _with_short_rows,
        aten._thnn_fused_lstm_cell.default: lstm_cell,
        aten._thnn_fused_gru_cell.default: gru_cell,
        aten.bilinear.default: bilinear,
        aten._trilinear.default: trilinear,
        aten.multi_margin_loss_backward.default: multi_margin_loss_backward,
        aten.multilabel_margin_loss_backward.default: multilabel_margin_loss_backward,
        aten._segment_reduce_backward.default: segment_reduce_backward,
        aten._embedding_bag_per_sample_weights_backward.default: _of_weights_of_words,
    }


def _of_weights_of_words(
    gradient: Any, weight: Any, words: Any, offsets: Any, _: Any, mode: int, padding: int = -1
) -> Any:
    """``_embedding_bag_per_sample_weights_backward``: of each word, its row times its bag's.

    The forward operator may leave out which bag a word is in; so it is computed from the offsets.
    """
    import torch

    starts = torch.zeros(words.shape[0] + 1, dtype=torch.int64, device=words.device)
    starts = starts.scatter_add(0, offsets.long(), torch.ones_like(offsets, dtype=torch.int64))
    bags = starts[:-1].cumsum(0) - 1
    products = (weight.index_select(0, words) * gradient.index_select(0, bags)).sum(1)
    return torch.where(words == padding, torch.zeros_like(products), products)


def _with_short_rows(weight: Any, words: Any, longest: float, order: float) -> Any:
    """``embedding_renorm``: rows of words that are longer than ``longest`` are shortened to it."""
    import torch

    words = words.reshape(-1)
    rows = weight.index_select(0, words)
    lengths = torch.linalg.vector_norm(rows, order, dim=1, keepdim=True)
    scales = torch.where(lengths > longest, longest / (lengths + 1e-7), 1.0)
    return weight.index_put([words], rows * scales)
