"""Graph neural networks of torch-geometric."""

from __future__ import annotations

from typing import Any

import torch

_SIZES = {"full": (10_000, 160_000, 128), "small": (64, 300, 32)}


def _graph(size: str) -> tuple[torch.Tensor, torch.Tensor, int]:
    nodes, edges, features = _SIZES[size]
    edge_index = torch.randint(0, nodes, (2, edges))
    return torch.randn(nodes, features), edge_index, features


def _two_layers(first: Any, second: Any) -> torch.nn.Module:
    class TwoLayers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = first, second

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x, edge_index).relu(), edge_index)

    return TwoLayers().eval()


def gcn(size: str) -> tuple[Any, tuple[Any, ...]]:
    """Graph convolution: degrees by one scatter, messages by another."""
    from torch_geometric.nn import GCNConv

    x, edge_index, width = _graph(size)
    layers = [GCNConv(width, width, add_self_loops=False) for _ in range(2)]
    return _two_layers(*layers), (x, edge_index)


def sage_mean(size: str) -> tuple[Any, tuple[Any, ...]]:
    """GraphSAGE, the mean over neighbours."""
    return _sage(size, "mean")


def sage_max(size: str) -> tuple[Any, tuple[Any, ...]]:
    """GraphSAGE, the maximum over neighbours."""
    return _sage(size, "max")


def _sage(size: str, aggregation: str) -> tuple[Any, tuple[Any, ...]]:
    from torch_geometric.nn import SAGEConv

    x, edge_index, width = _graph(size)
    layers = [SAGEConv(width, width, aggr=aggregation) for _ in range(2)]
    return _two_layers(*layers), (x, edge_index)


def gin(size: str) -> tuple[Any, tuple[Any, ...]]:
    """Graph isomorphism network: the sum over neighbours."""
    from torch_geometric.nn import GINConv

    x, edge_index, width = _graph(size)
    layers = [GINConv(torch.nn.Linear(width, width)) for _ in range(2)]
    return _two_layers(*layers), (x, edge_index)


def gat(size: str) -> tuple[Any, tuple[Any, ...]]:
    """Graph attention: a softmax over neighbours takes a maximum and a sum."""
    from torch_geometric.nn import GATConv

    x, edge_index, width = _graph(size)
    layers = [GATConv(width, width // 4, heads=4, add_self_loops=False) for _ in range(2)]
    return _two_layers(*layers), (x, edge_index)
