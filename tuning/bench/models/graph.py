"""Random graphs, the same ones in every run."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tvm_scatter.tuning.operands.distributions import draw_indices

FEATURES = 128
HEADS = 4


@dataclass(frozen=True)
class Size:
    """How large a graph is, and how its destinations are distributed.

    Attributes
    ----------
    degree : int or None
        The average degree; ``None`` for a graph of another size than the rest.
    features : int
        The features of a node.
    """

    nodes: int
    edges: int
    indices: str
    degree: int | None = None
    features: int = FEATURES


@dataclass(frozen=True)
class Graph:
    """Features of nodes, a weight for each edge, and where each edge begins and ends.

    Attributes
    ----------
    x : torch.Tensor
        (nodes, features).
    weight : torch.Tensor
        (edges,), not negative.
    src, dst : torch.Tensor
        int64, (edges,).
    """

    x: torch.Tensor
    weight: torch.Tensor
    src: torch.Tensor
    dst: torch.Tensor

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.x)

    @property
    def edges(self) -> int:
        """The number of edges."""
        return len(self.src)

    @property
    def counts(self) -> torch.Tensor:
        """The number of edges that end at each node, (nodes, 1)."""
        return torch.bincount(self.dst, minlength=self.nodes)[:, None]


def draw(size: Size, dtype: torch.dtype) -> Graph:
    """The graph of a size on the host."""
    generator = torch.Generator().manual_seed(0)
    return Graph(
        x=torch.randn(size.nodes, size.features, generator=generator).to(dtype),
        weight=torch.rand(size.edges, generator=generator).to(dtype),
        src=indices("uniform", size.nodes, size.edges, 1),
        dst=indices(size.indices, size.nodes, size.edges, 2),
    )


def indices(distribution: str, extent: int, count: int, seed: int) -> torch.Tensor:
    """Indices in memory of PyTorch's own: TVM takes only what is aligned to 64 bytes."""
    return torch.from_numpy(draw_indices(distribution, extent, count, seed=seed)).clone()
