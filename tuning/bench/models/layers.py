"""Graph networks of torch_geometric, two layers each, as users write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import libraries
from .case import Case
from .graph import FEATURES, HEADS, Size, indices


class TwoLayers(torch.nn.Module):
    """Two layers, and a rectifier between them."""

    def __init__(self, make: Callable[[Any], torch.nn.Module]) -> None:
        super().__init__()
        from torch_geometric import nn

        self.first, self.second = make(nn), make(nn)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x, edges).relu(), edges)


def _edge_conv(nn: Any) -> torch.nn.Module:
    return nn.EdgeConv(torch.nn.Linear(2 * FEATURES, FEATURES))


#: Each makes a layer, given ``torch_geometric.nn``.
LAYERS: dict[str, Callable[[Any], torch.nn.Module]] = {
    "GCN": lambda nn: nn.GCNConv(FEATURES, FEATURES),
    "SAGE": lambda nn: nn.SAGEConv(FEATURES, FEATURES),
    "GIN": lambda nn: nn.GINConv(torch.nn.Linear(FEATURES, FEATURES)),
    "GAT": lambda nn: nn.GATConv(FEATURES, FEATURES // HEADS, heads=HEADS),
    "GATv2": lambda nn: nn.GATv2Conv(FEATURES, FEATURES // HEADS, heads=HEADS),
    "EdgeConv": _edge_conv,
    "TransformerConv": lambda nn: nn.TransformerConv(FEATURES, FEATURES // HEADS, heads=HEADS),
}


def two_layers(name: str, size: Size) -> Case:
    """A model of a kind of layer on a random graph."""
    torch.manual_seed(0)
    module = TwoLayers(LAYERS[name]).eval()
    x = torch.randn(size.nodes, FEATURES)
    ends = [indices("uniform", size.nodes, size.edges, 1)]
    ends.append(indices(size.indices, size.nodes, size.edges, 2))

    def sorted_graph(x: torch.Tensor, edges: torch.Tensor) -> libraries.Call:
        graph = libraries.edge_index(edges[0], edges[1], size.nodes)
        there = module.to(x.device)
        return lambda: there(x, graph)

    prepared = {libraries.GEOMETRIC: sorted_graph}
    inputs, varying = (x, torch.stack(ends)), ((0,), (1,))
    return Case(module, inputs, None, (), size.nodes, 0, varying, prepared)
