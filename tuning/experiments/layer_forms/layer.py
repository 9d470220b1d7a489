"""What a layer is measured with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Layer:
    """A function of tensors.

    Attributes
    ----------
    function : callable
        The layer.
    inputs : tuple of torch.Tensor
        Its inputs and weights.
    unknown : mapping of int to int
        By the number of an input, the axis whose size may be known at run time only.
    """

    function: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]
    unknown: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Draw:
    """Draws inputs. Sizes are divided by ``smaller``, so that a layer is soon tried."""

    device: str = "cuda"
    smaller: int = 1
    generator: torch.Generator = field(init=False)

    def __post_init__(self) -> None:
        generator = torch.Generator(self.device).manual_seed(0)
        object.__setattr__(self, "generator", generator)

    def size(self, size: int, least: int = 8) -> int:
        """A size, or a smaller one."""
        return max(least, size // self.smaller)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Numbers around zero."""
        return torch.randn(shape, generator=self.generator, device=self.device).to(dtype)

    def weight(self, *shape: int) -> torch.Tensor:
        """Numbers whose sums over the first of the axes are about one."""
        return self.normal(*shape) / shape[0] ** 0.5

    def below(self, end: int, *shape: int) -> torch.Tensor:
        """Indices."""
        return torch.randint(0, end, shape, generator=self.generator, device=self.device)

    def graph(self, nodes: int, edges: int) -> torch.Tensor:
        """The ends of edges."""
        return self.below(nodes, 2, edges)


Make = Callable[[Draw], Layer]


def summed(rows: torch.Tensor, index: torch.Tensor, count: int) -> torch.Tensor:
    """The sums of the rows with each index."""
    zeros = torch.zeros(count, *rows.shape[1:], dtype=rows.dtype, device=rows.device)
    return zeros.index_add(0, index, rows)


def counted(index: torch.Tensor, count: int) -> torch.Tensor:
    """How often each index is there, at least one, as a column."""
    ones = torch.ones(index.shape[0], device=index.device)
    return summed(ones, index, count).clamp(min=1)[:, None]


def greatest(rows: torch.Tensor, index: torch.Tensor, count: int) -> torch.Tensor:
    """The maxima of the rows with each index, minus infinity of none."""
    none = torch.full((count, *rows.shape[1:]), float("-inf"), device=rows.device)
    return none.scatter_reduce(0, index[:, None].expand_as(rows), rows, "amax")
