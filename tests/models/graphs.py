"""Layers and aggregations of graph neural networks."""

from __future__ import annotations

import torch
from torch_geometric import nn

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
