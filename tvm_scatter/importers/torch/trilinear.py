"""``_trilinear``, which ``nn.Bilinear`` and its gradients are made of, as products."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters
from typing import Any


def bilinear(first: Any, second: Any, weight: Any, bias: Any = None) -> Any:
    """``bilinear``: of each output, all pairs of elements of two vectors are weighed."""
    import torch

    sums = torch.einsum("...i,oij,...j->...o", first, weight, second)
    return sums if bias is None else sums + bias


def trilinear(
    first: Any,
    second: Any,
    third: Any,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Any:
    """The product of three tensors that get axes of size 1 each, summed over some axes.

    Two at a time, so that there is never a tensor of all axes.
    """
    import torch

    rank = first.dim() + len(expand1)

    def axes_but(left_out: Sequence[int]) -> str:
        numbers = {axis % rank for axis in left_out}
        return "".join(ascii_letters[axis] for axis in range(rank) if axis not in numbers)

    factors = ",".join(map(axes_but, (expand1, expand2, expand3)))
    return torch.einsum(f"{factors}->{axes_but(sumdim)}", first, second, third)
