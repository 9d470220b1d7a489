"""Layers and aggregations of graph neural networks."""

from __future__ import annotations

import torch
from torch_geometric import nn
from torch_geometric.utils import add_self_loops, remove_self_loops

from .zoo import Program, model

NODES, EDGES, CHANNELS = 20, 60, 8


def graph() -> tuple[torch.Tensor, torch.Tensor]:
    """Features of nodes, and edges, some of which are self-loops or stand twice."""
    return torch.randn(NODES, CHANNELS), torch.randint(0, NODES, (2, EDGES))


@model("SAGEConv", "torch_geometric")
def sage() -> Program:
    return Program(nn.SAGEConv(CHANNELS, 4), graph())


@model("GINConv", "torch_geometric")
def gin() -> Program:
    return Program(nn.GINConv(torch.nn.Linear(CHANNELS, 4)), graph())


@model("GCNConv", "torch_geometric")
def gcn() -> Program:
    return Program(nn.GCNConv(CHANNELS, 4), graph())


@model("GCNConv on any graph", "torch_geometric")
def gcn_on_any_graph() -> Program:
    nodes, edges = torch.export.Dim("nodes"), torch.export.Dim("edges")
    again = torch.randn(7, CHANNELS), torch.randint(0, 7, (2, 30))
    return Program(nn.GCNConv(CHANNELS, 4), graph(), ({0: nodes}, {1: edges}), again)


@model("GATConv", "torch_geometric")
def gat() -> Program:
    return Program(nn.GATConv(CHANNELS, 4, heads=2), graph())


class _SageWithLoops(torch.nn.Module):
    """Every node is its own neighbour once, whatever the graph says."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.SAGEConv(CHANNELS, 4)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        edges, _ = remove_self_loops(edges)
        edges, _ = add_self_loops(edges, num_nodes=x.shape[0])
        return self.layer(x, edges)


@model("SAGEConv with self-loops", "torch_geometric")
def sage_with_loops() -> Program:
    return Program(_SageWithLoops(), graph())
