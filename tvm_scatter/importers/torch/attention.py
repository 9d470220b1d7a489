"""The gradient of attention, in PyTorch's own operators."""

from __future__ import annotations

import math
from typing import Any


def attention_backward(
    gradient: Any,
    query: Any,
    key: Any,
    value: Any,
    out: Any,
    logsumexp: Any,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
) -> tuple[Any, Any, Any]:
    """``_scaled_dot_product_flash_attention_for_cpu_backward``.

    The weights are computed again: PyTorch decomposes the forward operator into one that does not
    return the logarithms that the backward one expects.
    """
    import torch

    # Halves are added up in single precision.
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    gradient, query, key, value = (each.to(wide) for each in (gradient, query, key, value))
    heads, shared = query.shape[1], key.shape[1]
    if heads != shared:
        # Several heads of queries read one of keys and values.
        key, value = (each.repeat_interleave(heads // shared, 1) for each in (key, value))
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1])
    scores = torch.matmul(query, key.mT) * scale
    if attn_mask is not None:
        scores = scores + attn_mask
    if is_causal:
        rows, columns = (torch.arange(n, device=query.device) for n in scores.shape[-2:])
        scores = torch.where(columns > rows[:, None], -math.inf, scores)
    weights = torch.softmax(scores, -1)
    if attn_mask is not None:
        # A row of which nothing is seen has weights of zero, where a softmax is not a number.
        sees_nothing = (scores == -math.inf).all(-1, keepdim=True)
        weights = torch.where(sees_nothing, 0.0, weights)
    of_weights = torch.matmul(gradient, value.mT) * weights
    of_scores = (of_weights - weights * of_weights.sum(-1, keepdim=True)) * scale
    of_key, of_value = torch.matmul(of_scores.mT, query), torch.matmul(weights.mT, gradient)
    if heads != shared:
        of_key, of_value = (
            each.unflatten(1, (shared, heads // shared)).sum(2) for each in (of_key, of_value)
        )
    gradients = torch.matmul(of_scores, key), of_key, of_value
    return tuple(each.to(out.dtype) for each in gradients)
