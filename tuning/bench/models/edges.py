"""Messages along the edges of a graph, reduced at the nodes, as users of PyTorch write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch.nn.functional import leaky_relu

from . import libraries
from .case import Case, bytes_of
from .graph import FEATURES, HEADS, Graph

_SLOPE = 0.2


class WeightedSum(torch.nn.Module):
    """A graph convolution without its product."""

    def forward(
        self, x: torch.Tensor, weight: torch.Tensor, src: torch.Tensor, dst: torch.Tensor
    ) -> torch.Tensor:
        return torch.zeros_like(x).index_add(0, dst, x[src] * weight[:, None])


class Sum(torch.nn.Module):
    """The sum over neighbours."""

    def forward(self, x: torch.Tensor, src: torch.Tensor, dst: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x).index_add(0, dst, x[src])


class Reduced(torch.nn.Module):
    """The mean or the maximum over neighbours."""

    def __init__(self, reduce: str) -> None:
        super().__init__()
        self.reduce = reduce

    def message(self, x: torch.Tensor, src: torch.Tensor, dst: torch.Tensor) -> torch.Tensor:
        """What an edge tells the node at its end."""
        return x[src]

    def forward(self, x: torch.Tensor, src: torch.Tensor, dst: torch.Tensor) -> torch.Tensor:
        messages = self.message(x, src, dst)
        index = dst[:, None].expand_as(messages)
        zeros = torch.zeros_like(x)
        return zeros.scatter_reduce(0, index, messages, self.reduce, include_self=False)


class EdgeConv(Reduced):
    """The maximum over what neighbours have less, as in dynamic graph networks."""

    def message(self, x: torch.Tensor, src: torch.Tensor, dst: torch.Tensor) -> torch.Tensor:
        return (x[dst] - x[src]).relu()


def attended(
    values: torch.Tensor, logits: torch.Tensor, dst: torch.Tensor, nodes: int
) -> torch.Tensor:
    """The sum of values (edges, heads, channels) by a softmax of logits over a node's edges."""
    index = dst[:, None].expand_as(logits)
    zeros = logits.new_zeros(nodes, logits.shape[1])
    top = zeros.scatter_reduce(0, index, logits, "amax", include_self=False)
    powers = (logits - top[dst]).exp()
    total = zeros.index_add(0, dst, powers) + 1e-16
    weighted = values * (powers / total[dst])[:, :, None]
    result = values.new_zeros(nodes, values.shape[1], values.shape[2])
    return result.index_add(0, dst, weighted).flatten(1)


class Attention(torch.nn.Module):
    """A graph attention layer behind its products: a logit of each end, a softmax, a sum."""

    def forward(
        self,
        x: torch.Tensor,
        left: torch.Tensor,
        right: torch.Tensor,
        src: torch.Tensor,
        dst: torch.Tensor,
    ) -> torch.Tensor:
        logits = leaky_relu(left[src] + right[dst], _SLOPE)
        return attended(x[src].unflatten(1, (HEADS, -1)), logits, dst, x.shape[0])


class AttentionV2(torch.nn.Module):
    """The same of the second version: the logit is a product of both ends' features."""

    def forward(
        self,
        x: torch.Tensor,
        target: torch.Tensor,
        weights: torch.Tensor,
        src: torch.Tensor,
        dst: torch.Tensor,
    ) -> torch.Tensor:
        values = x[src].unflatten(1, (HEADS, -1))
        both = leaky_relu(values + target[dst].unflatten(1, (HEADS, -1)), _SLOPE)
        return attended(values, (both * weights).sum(-1), dst, x.shape[0])


def weighted_sum(graph: Graph) -> Case:
    """``x[src] * weight``, summed."""
    inputs = (graph.x, graph.weight, graph.src, graph.dst)
    return _case(WeightedSum(), inputs, graph, libraries.weighted_sums())


def plain_sum(graph: Graph) -> Case:
    """``x[src]``, summed."""
    inputs = (graph.x, graph.src, graph.dst)
    return _case(Sum(), inputs, graph, libraries.reductions("sum"))


def mean(graph: Graph) -> Case:
    """The mean of ``x[src]``."""
    inputs = (graph.x, graph.src, graph.dst)
    return _case(Reduced("mean"), inputs, graph, libraries.reductions("mean"))


def maximum(graph: Graph) -> Case:
    """The maximum of ``x[src]``."""
    inputs = (graph.x, graph.src, graph.dst)
    return _case(Reduced("amax"), inputs, graph, libraries.reductions("amax"))


def edge_conv(graph: Graph) -> Case:
    """The maximum of ``relu(x[dst] - x[src])``, which reads the destination's row as well."""
    inputs = (graph.x, graph.src, graph.dst)
    peers = libraries.edge_convolution()
    return _case(EdgeConv("amax"), inputs, graph, peers, bytes_of(graph.x))


def attention(graph: Graph) -> Case:
    """GAT's edge softmax of given logits."""
    generator = torch.Generator().manual_seed(3)
    ends = torch.randn(2, graph.nodes, HEADS, generator=generator).to(graph.x.dtype)
    left, right = (each.clone() for each in ends)
    inputs = (graph.x, left, right, graph.src, graph.dst)
    more = graph.edges * HEADS * graph.x.element_size() + bytes_of(right)
    return _case(Attention(), inputs, graph, libraries.edge_softmax(), more)


def attention_v2(graph: Graph) -> Case:
    """GATv2's edge softmax. Values are not negative, so that errors are as large as results."""
    generator = torch.Generator().manual_seed(3)
    dtype = graph.x.dtype
    target = torch.randn(graph.nodes, FEATURES, generator=generator).to(dtype)
    weights = torch.randn(HEADS, FEATURES // HEADS, generator=generator).to(dtype) / 8
    inputs = (graph.x.abs(), target, weights, graph.src, graph.dst)
    peers = libraries.edge_softmax_v2()
    return _case(AttentionV2(), inputs, graph, peers, bytes_of(target))


#: What each row of graphs is made by.
OPERATIONS: dict[str, Callable[[Graph], Case]] = {
    "weighted sum": weighted_sum,
    "sum": plain_sum,
    "mean": mean,
    "max": maximum,
    "EdgeConv, max": edge_conv,
    "GAT softmax": attention,
    "GATv2 softmax": attention_v2,
}


def _case(
    module: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    graph: Graph,
    prepared: Mapping[str, libraries.Maker],
    more_bytes: int = 0,
) -> Case:
    row = graph.x.shape[1] * graph.x.element_size()
    scalars = [each for each in inputs if len(each) == graph.edges]
    moved = (graph.edges + graph.nodes) * row + bytes_of(*scalars) + more_bytes
    varying = tuple((0,) if len(each) in (graph.nodes, graph.edges) else () for each in inputs)
    counts, where = graph.counts, (graph.dst,)
    return Case(module.eval(), inputs, counts, where, graph.nodes, moved, varying, prepared)
