"""Attention and its gradient, in PyTorch's own operators."""

from __future__ import annotations

import math
from typing import Any


def attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    dropout_p: float,
    is_causal: bool,
    bias: Any = None,
    scale: float | None = None,
) -> Any:
    """The output of ``scaled_dot_product_attention``."""
    import torch

    dtype = query.dtype
    query, key, value = _widened(query, key, value)
    key, value = _of_all_heads(query, key, value)
    if bias is not None and bias.dtype == torch.bool:
        bias = torch.where(bias, query.new_zeros(()), -math.inf)
    weights = _weights(query, key, bias, is_causal, _scale(query, scale))
    if dropout_p:
        weights = torch.dropout(weights, dropout_p, True)
    return torch.matmul(weights, value).to(dtype)


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

    gradient, query, key, value = _widened(gradient, query, key, value)
    heads, shared = query.shape[1], key.shape[1]
    key, value = _of_all_heads(query, key, value)
    scale = _scale(query, scale)
    weights = _weights(query, key, attn_mask, is_causal, scale)
    of_weights = torch.matmul(gradient, value.mT) * weights
    of_scores = (of_weights - weights * of_weights.sum(-1, keepdim=True)) * scale
    of_key, of_value = torch.matmul(of_scores.mT, query), torch.matmul(weights.mT, gradient)
    if heads != shared:
        of_key, of_value = (
            each.unflatten(1, (shared, heads // shared)).sum(2) for each in (of_key, of_value)
        )
    gradients = torch.matmul(of_scores, key), of_key, of_value
    return tuple(each.to(out.dtype) for each in gradients)


def _widened(*tensors: Any) -> Any:
    """The tensors; halves are added up in single precision."""
    import torch

    wide = torch.float64 if tensors[0].dtype == torch.float64 else torch.float32
    return (each.to(wide) for each in tensors)


def _of_all_heads(query: Any, key: Any, value: Any) -> Any:
    """Keys and values for each head of the queries, of which several may read one."""
    heads, shared = query.shape[-3], key.shape[-3]
    if heads == shared:
        return key, value
    return (each.repeat_interleave(heads // shared, -3) for each in (key, value))


def _scale(query: Any, scale: float | None) -> Any:
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def _weights(query: Any, key: Any, bias: Any, is_causal: bool, scale: Any) -> Any:
    """How much each query takes of the value of each key."""
    import torch

    scores = torch.matmul(query, key.mT) * scale
    if bias is not None:
        scores = scores + bias
    if is_causal:
        # Indexing and ``all`` cannot be traced for a GPU that is not there.
        rows, columns = (torch.arange(n, device=query.device) for n in scores.shape[-2:])
        scores = torch.where(columns > rows.unsqueeze(1), -math.inf, scores)
    weights = torch.softmax(scores, -1)
    if bias is not None:
        # A row of which nothing is seen has weights of zero, where a softmax is not a number.
        # ``any`` cannot be traced there, either.
        seen = torch.where(scores == -math.inf, 0.0, 1.0).sum(-1, keepdim=True)
        sees_nothing = seen == 0
        weights = torch.where(sees_nothing, 0.0, weights)
    return weights
