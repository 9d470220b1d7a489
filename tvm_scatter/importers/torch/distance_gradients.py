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


def _differences(left: Any, right: Any) -> Any:
    return left.unsqueeze(-2) - right.unsqueeze(-3)
