"""The gradient of distances between all pairs of points, in PyTorch's own operators."""

from __future__ import annotations

import math
from typing import Any


def cdist_backward(gradient: Any, left: Any, right: Any, p: float, distances: Any) -> Any:
    """``_cdist_backward``: the gradient of the left points. None flows where points are equal."""
    import torch

    apart = _differences(left, right)
    gradient, distances = gradient[..., None], distances[..., None]
    if p == 0:
        return torch.zeros_like(left)
    if p == 1:
        slopes = apart.sign()
    elif p == math.inf:
        slopes = apart.sign() * (apart.abs() == distances)
    else:
        lengths = torch.where(distances == 0, 1.0, distances)
        ratios = (apart / lengths).abs()
        powers = ratios if p == 2 else torch.where(ratios == 0, 0.0, ratios.pow(p - 1))
        slopes = apart.sign() * powers
    return (gradient * slopes).sum(-2)


def pdist_backward(gradient: Any, points: Any, p: float, distances: Any) -> Any:
    """``_pdist_backward``: each pair of points counts once, and for both of them."""
    import torch

    count = points.shape[0]
    if count < 2:
        return torch.zeros_like(points)
    pairs = torch.triu_indices(count, count, 1, device=points.device).unbind()

    def of_all_pairs(values: Any) -> Any:
        half = values.new_zeros(count, count).index_put(pairs, values)
        return half + half.t()

    return cdist_backward(of_all_pairs(gradient), points, points, p, of_all_pairs(distances))


def _differences(left: Any, right: Any) -> Any:
    return left.unsqueeze(-2) - right.unsqueeze(-3)
