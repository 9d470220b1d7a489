"""Which axes of the operands of an operator have the same size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

#: A node that computes an operand, and a label of each axis that has to agree with others, counted
#: from the last: those of one label are of one size, or are broadcast.
AgreeingAxes = tuple[Any, dict[int, Any]]

#: Products in the notation of ``einsum``, by the operands in their order.
_PRODUCTS = {
    "aten::dot": ("k", "k"),
    "aten::mv": ("mk", "k"),
    "aten::mm": ("mk", "kn"),
    "aten::bmm": ("bmk", "bkn"),
    "aten::addmv": ("m", "mk", "k"),
    "aten::addmm": ("mn", "mk", "kn"),
    "aten::baddbmm": ("bmn", "bmk", "bkn"),
    "aten::cdist": ("...mk", "...nk"),
    "aten::_cdist_forward": ("...mk", "...nk"),
}
_JOINS = ("aten::cat", "aten::stack")


def broadcasts(node: Any) -> bool:
    """Whether operands of one element along an axis are repeated there."""
    return _name(node) not in _JOINS


def agreeing_axes(node: Any) -> Iterator[AgreeingAxes]:
    """The axes of the operands of a call of ``torch.fx``; nothing for an unknown operator."""
    import torch

    name = _name(node)
    if name in _PRODUCTS:
        for operand, axes in zip(node.args, _PRODUCTS[name], strict=False):
            yield operand, _labels(operand, axes)
    elif name in _JOINS:
        yield from _joined(node, name == "aten::cat")
    elif torch.Tag.pointwise in getattr(node.target, "tags", ()):
        for operand in node.all_input_nodes:
            yield operand, _labels(operand, "...")


def _name(node: Any) -> str:
    return str(getattr(getattr(node.target, "_schema", None), "name", ""))


def _labels(operand: Any, axes: str) -> dict[int, Any]:
    """A letter for each last axis; where others may be in front of them, their places."""
    letters = axes.removeprefix("...")
    labels: dict[int, Any] = {-at: letter for at, letter in enumerate(reversed(letters), 1)}
    rank = _rank(operand)
    if axes.startswith("..."):
        labels |= {-at: at for at in range(len(letters) + 1, rank + 1)}
    return {at: label for at, label in labels.items() if -at <= rank}


def _joined(node: Any, along: bool) -> Iterator[AgreeingAxes]:
    """All axes of tensors but, for ``cat``, the one that is joined. An empty vector is nothing."""
    operands = node.args[0]
    rank = max(map(_rank, operands), default=0)
    axis = (node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)) if along else rank
    last = axis - rank if axis >= 0 else axis
    for operand in operands:
        if _rank(operand) == rank:
            yield operand, {-at: at for at in range(1, rank + 1) if not (along and -at == last)}


def _rank(operand: Any) -> int:
    shape = getattr(getattr(operand, "meta", {}).get("val"), "shape", ())
    return len(shape)
