"""Losses by margins between classes, and their gradients, in PyTorch's own operators.

PyTorch has decompositions of the losses only, and that of ``multilabel_margin_loss`` counts the
entries behind the end of a list of classes.
"""

from __future__ import annotations

from typing import Any

_MEAN, _SUM = 1, 2


def multilabel_margin_loss(scores: Any, classes: Any, reduction: int = _MEAN) -> Any:
    """``multilabel_margin_loss``."""
    return multilabel_margin_loss_forward(scores, classes, reduction)[0]


def multilabel_margin_loss_forward(scores: Any, classes: Any, reduction: int) -> tuple[Any, Any]:
    """``multilabel_margin_loss_forward``: the loss, and which scores are of listed classes."""
    margins, counted, _, listed = _margins_of_lists(scores, classes)
    losses = (margins.clamp_min(0) * counted).sum((1, 2)) / margins.shape[2]
    if reduction == _MEAN:
        losses = losses.mean()
    elif reduction == _SUM:
        losses = losses.sum()
    elif scores.ndim < 2:
        losses = losses[0]
    return losses, listed.to(scores.dtype).reshape(scores.shape)


def multilabel_margin_loss_backward(
    gradient: Any, scores: Any, classes: Any, reduction: int, _: Any
) -> Any:
    """``multilabel_margin_loss_backward``: up for others, down for the listed class beside them."""
    import torch

    margins, counted, at, _ = _margins_of_lists(scores, classes)
    active = (counted & (margins > 0)).to(scores.dtype)
    slopes = active.sum(1).scatter_add(1, at, -active.sum(2)) / margins.shape[2]
    result = slopes * _of_each(gradient, slopes.shape[0], reduction)
    return torch.reshape(result, scores.shape)


def multi_margin_loss_backward(
    gradient: Any,
    scores: Any,
    classes: Any,
    p: int,
    margin: float,
    weight: Any = None,
    reduction: int = _MEAN,
) -> Any:
    """``multi_margin_loss_backward``: up for each other class, down for the right one."""
    import torch

    rows, at = torch.atleast_2d(scores), torch.atleast_1d(classes)[:, None]
    margins = margin - rows.gather(1, at) + rows
    slopes = (margins > 0).to(rows.dtype) if p == 1 else 2 * margins.clamp_min(0)
    if weight is not None:
        slopes = slopes * weight[at]
    slopes = slopes.scatter(1, at, 0)
    slopes = slopes.scatter(1, at, -slopes.sum(1, keepdim=True)) / rows.shape[1]
    result = slopes * _of_each(gradient, rows.shape[0], reduction)
    return torch.reshape(result, scores.shape)


def _margins_of_lists(scores: Any, classes: Any) -> tuple[Any, Any, Any, Any]:
    """Of lists of classes, each of which ends at the first -1.

    Returns
    -------
    margins : torch.Tensor
        1 less the score of a listed class, plus that of any class: (lists, entries, classes).
    counted : torch.Tensor
        Which of them count: of entries that are classes, with classes that are not listed.
    at : torch.Tensor
        The classes, 0 behind the end of a list: (lists, entries).
    listed : torch.Tensor
        Which classes are listed: (lists, classes).
    """
    import torch

    rows, lists = torch.atleast_2d(scores), torch.atleast_2d(classes)
    known = (lists == -1).to(torch.int64).cumsum(1) == 0
    at = torch.where(known, lists, 0)
    listed = torch.zeros_like(lists).scatter_add(1, at, known.to(lists.dtype)) > 0
    margins = 1 - rows.gather(1, at)[:, :, None] + rows[:, None, :]
    return margins, known[:, :, None] & ~listed[:, None, :], at, listed


def _of_each(gradient: Any, rows: Any, reduction: int) -> Any:
    """The gradient of the loss of each row, as a column or a number."""
    if reduction == _MEAN:
        return gradient / rows
    return gradient if reduction == _SUM else gradient.reshape(-1, 1)
