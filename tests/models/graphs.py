"""Layers and aggregations of graph neural networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


class _TwoLayers(torch.nn.Module):
    """Both layers compute the same of the edges."""

    def __init__(self, first: torch.nn.Module, second: torch.nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x, edges).relu(), edges)


@model("GCNConv, two layers", "torch_geometric")
def two_gcns() -> Program:
    return Program(_TwoLayers(nn.GCNConv(CHANNELS, 8), nn.GCNConv(8, 4)), graph())


@model("GATv2Conv, two layers on any graph", "torch_geometric")
def two_gats() -> Program:
    nodes, edges = torch.export.Dim("nodes"), torch.export.Dim("edges")
    again = torch.randn(7, CHANNELS), torch.randint(0, 7, (2, 30))
    layers = _TwoLayers(nn.GATv2Conv(CHANNELS, 4, heads=2), nn.GATv2Conv(8, 4))
    return Program(layers, graph(), ({0: nodes}, {1: edges}), again)


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


def layer(name: str, make: Callable[[], Any], *others: Callable[[], torch.Tensor]) -> None:
    """Put a layer into the zoo. It is called with features, edges and what ``others`` make."""

    @model(name, "torch_geometric")
    def program() -> Program:
        return Program(make(), (*graph(), *(other() for other in others)))


def perceptron(inputs: int, outputs: int) -> torch.nn.Module:
    first, last = torch.nn.Linear(inputs, 8), torch.nn.Linear(8, outputs)
    return torch.nn.Sequential(first, torch.nn.ReLU(), last)


def weights() -> torch.Tensor:
    return torch.rand(EDGES)


def attributes() -> torch.Tensor:
    return torch.randn(EDGES, 4)


def relations() -> torch.Tensor:
    return torch.randint(0, 3, (EDGES,))


layer("ChebConv", lambda: nn.ChebConv(CHANNELS, 4, K=3))
layer("GraphConv with weights", lambda: nn.GraphConv(CHANNELS, 4), weights)
layer("GatedGraphConv", lambda: nn.GatedGraphConv(CHANNELS, 2))
layer("ResGatedGraphConv", lambda: nn.ResGatedGraphConv(CHANNELS, 4, edge_dim=4), attributes)
layer("GATv2Conv", lambda: nn.GATv2Conv(CHANNELS, 4, heads=2, edge_dim=4), attributes)
layer("TransformerConv", lambda: nn.TransformerConv(CHANNELS, 4, 2, edge_dim=4), attributes)
layer("AGNNConv", nn.AGNNConv)
layer("TAGConv", lambda: nn.TAGConv(CHANNELS, 4))
layer("GINEConv", lambda: nn.GINEConv(perceptron(CHANNELS, 4), edge_dim=4), attributes)
layer("ARMAConv", lambda: nn.ARMAConv(CHANNELS, 4, num_stacks=2, num_layers=2))
layer("APPNP", lambda: nn.APPNP(3, 0.1))
layer("MFConv", lambda: nn.MFConv(CHANNELS, 4))
layer("FastRGCNConv", lambda: nn.FastRGCNConv(CHANNELS, 4, num_relations=3), relations)
layer("RGATConv", lambda: nn.RGATConv(CHANNELS, 4, num_relations=3), relations)
layer("GMMConv", lambda: nn.GMMConv(CHANNELS, 4, dim=4, kernel_size=3), attributes)
layer("NNConv", lambda: nn.NNConv(CHANNELS, 4, perceptron(4, 4 * CHANNELS)), attributes)
layer("CGConv", lambda: nn.CGConv(CHANNELS, dim=4), attributes)
layer("EdgeConv", lambda: nn.EdgeConv(perceptron(2 * CHANNELS, 4)))
layer("FeaStConv", lambda: nn.FeaStConv(CHANNELS, 4, heads=2))
layer("LEConv", lambda: nn.LEConv(CHANNELS, 4))
layer("ClusterGCNConv", lambda: nn.ClusterGCNConv(CHANNELS, 4))
layer("GENConv", lambda: nn.GENConv(CHANNELS, 4))
layer("FiLMConv", lambda: nn.FiLMConv(CHANNELS, 4, num_relations=3), relations)
layer("SuperGATConv", lambda: nn.SuperGATConv(CHANNELS, 4, heads=2))
layer("EGConv", lambda: nn.EGConv(CHANNELS, 8, aggregators=["symnorm", "max", "std"], num_heads=4))
layer("GeneralConv", lambda: nn.GeneralConv(CHANNELS, 4, 4, attention=True, heads=2), attributes)
layer("GPSConv", lambda: nn.GPSConv(CHANNELS, nn.GCNConv(CHANNELS, CHANNELS), heads=2))
layer("MixHopConv", lambda: nn.MixHopConv(CHANNELS, 4))
layer("PNA, two layers", lambda: nn.PNA(8, 8, 2, 4, **_PNA))
layer("GraphSAGE, two layers", lambda: nn.GraphSAGE(8, 8, 2, 4))

_PNA = {
    "aggregators": ["mean", "min", "max", "std"],
    "scalers": ["identity", "amplification", "attenuation"],
    "deg": torch.tensor([1, 2, 5, 6, 4, 2]),
}


class _OfGraphs(torch.nn.Module):
    """What is computed for each of three graphs, whose number and sizes are given."""

    def __init__(self, aggregation: torch.nn.Module, **sizes: int) -> None:
        super().__init__()
        self.aggregation, self.sizes = aggregation, sizes

    def forward(self, x: torch.Tensor, graph_of_node: torch.Tensor) -> torch.Tensor:
        return self.aggregation(x, graph_of_node, **self.sizes)


def aggregation(name: str, make: Callable[[], torch.nn.Module], **sizes: int) -> None:
    """Put an aggregation over the nodes of each graph into the zoo."""

    @model(name, "torch_geometric")
    def program() -> Program:
        inputs = torch.randn(NODES, CHANNELS), torch.arange(NODES) // 7
        made = make()
        # The check reads the values, which torch.export cannot follow.
        made.assert_sorted_index = lambda index: None
        return Program(_OfGraphs(made, **(sizes or {"dim_size": 3})), inputs)


SETS = {"dim_size": 3, "max_num_elements": 8}
several = ["mean", "max", "std", "median"]
aggregation("Aggregation of several kinds", lambda: nn.MultiAggregation(several))
aggregation("SoftmaxAggregation", lambda: nn.SoftmaxAggregation(learn=True))
aggregation("QuantileAggregation", lambda: nn.QuantileAggregation([0.25, 0.75]))
aggregation("Set2Set", lambda: nn.Set2Set(CHANNELS, 2))
aggregation("AttentionalAggregation", lambda: nn.AttentionalAggregation(perceptron(CHANNELS, 1)))
aggregation("SortAggregation", lambda: nn.SortAggregation(3), **SETS)
aggregation("LSTMAggregation", lambda: nn.LSTMAggregation(CHANNELS, 4), **SETS)
aggregation("SetTransformer", lambda: nn.SetTransformerAggregation(CHANNELS, heads=2), **SETS)
aggregation("GraphNorm", lambda: nn.GraphNorm(CHANNELS), batch_size=3)
