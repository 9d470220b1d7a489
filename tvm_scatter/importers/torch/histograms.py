"""``histogram`` and ``histogramdd`` in PyTorch's own operators: a search, and a scatter that adds.

The edges of data with infinities, or with what is not a number, are not numbers; PyTorch raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any


def histogram(
    data: Any, bins: int = 100, *, range: Any = None, weight: Any = None, density: bool = False
) -> tuple[Any, Any]:
    """``histogram`` of a number of bins: the counts, and the edges of the bins."""
    column = data.reshape(-1, 1)
    edges = _equal_bins(column, [bins], range)
    return _counted(column, edges, weight, density), edges[0]


def histogram_between(
    data: Any, bins: Any, *, weight: Any = None, density: bool = False
) -> tuple[Any, Any]:
    """``histogram`` of bins between edges."""
    return _counted(data.reshape(-1, 1), [bins], weight, density), bins.clone()


def edges_of_bins(
    data: Any, bins: Sequence[int], *, range: Any = None, weight: Any = None, density: bool = False
) -> list[Any]:
    """``_histogramdd_bin_edges``: those of each column, where the last axis has the columns."""
    return _equal_bins(_columns(data), bins, range)


def histogramdd(
    data: Any, bins: Sequence[int], *, range: Any = None, weight: Any = None, density: bool = False
) -> Any:
    """``_histogramdd_from_bin_cts``."""
    columns = _columns(data)
    return _counted(columns, _equal_bins(columns, bins, range), weight, density)


def histogramdd_between(
    data: Any, bins: Sequence[Any], *, weight: Any = None, density: bool = False
) -> Any:
    """``_histogramdd_from_bin_tensors``."""
    return _counted(_columns(data), bins, weight, density)


def _columns(data: Any) -> Any:
    return data.reshape(-1, data.shape[-1])


def _equal_bins(columns: Any, bins: Sequence[int], ranges: Any) -> list[Any]:
    """The edges of bins of equal width for each column."""
    import torch

    ends = [(0.0, 1.0)] * len(bins)
    if ranges is not None:
        ends = list(zip(ranges[::2], ranges[1::2], strict=True))
    elif columns.shape[0] != 0:
        lows, highs = columns.amin(0), columns.amax(0)
        same = lows == highs
        half = torch.where(same, 0.5, 0.0).to(columns.dtype)
        lows, highs = (lows - half).unbind(), (highs + half).unbind()
        return [_between(*each) for each in zip(lows, highs, bins, strict=True)]
    ends = [(low - 0.5, high + 0.5) if low == high else (low, high) for low, high in ends]
    return [
        torch.linspace(low, high, each + 1, dtype=columns.dtype, device=columns.device)
        for (low, high), each in zip(ends, bins, strict=True)
    ]


def _between(low: Any, high: Any, bins: int) -> Any:
    """Numbers of equal distance, counted from the nearer end, as ``linspace`` does."""
    import torch

    steps = torch.arange(bins + 1, dtype=low.dtype, device=low.device)
    step = (high - low) / bins
    first_half = steps < (bins + 1) // 2
    return torch.where(first_half, low + step * steps, high - step * (bins - steps))


def _counted(columns: Any, edges: Sequence[Any], weight: Any, density: bool) -> Any:
    """How many rows, or what weight of them, each bin has. The last bin has its right edge."""
    import torch

    bins = [each.shape[0] - 1 for each in edges]
    place = torch.zeros_like(columns[:, 0], dtype=torch.int64)
    inside = torch.ones_like(place, dtype=torch.bool)
    for column, ends, count in zip(columns.unbind(1), edges, bins, strict=True):
        at = torch.searchsorted(ends, column.contiguous(), right=True) - 1
        place = place * count + at.clamp(0, count - 1)
        inside = inside & (column >= ends[0]) & (column <= ends[-1])
    number = prod(bins)
    weight = torch.ones_like(columns[:, 0]) if weight is None else weight.reshape(-1)
    # One additional bin takes the rows that are outside. It is cut off below.
    place = torch.where(inside, place, number)
    counts = columns.new_zeros(number + 1).index_add(0, place, weight)[:number].reshape(bins)
    return _per_volume(counts, edges) if density else counts


def _per_volume(counts: Any, edges: Sequence[Any]) -> Any:
    density = counts / counts.sum()
    for axis, ends in enumerate(edges):
        widths = ends[1:] - ends[:-1]
        density = density / widths.reshape(-1, *(1 for _ in edges[axis + 1 :]))
    return density
