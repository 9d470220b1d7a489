"""Layers of graph networks, of molecules and of meshes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from .layer import Draw, Layer, Make, counted, greatest, summed

_NODES, _EDGES = 100_000, 1_000_000


def _sizes(draw: Draw, part: int = 1) -> tuple[int, int]:
    return draw.size(_NODES // part, 50), draw.size(_EDGES // part, 200)


def gated(draw: Draw) -> Layer:
    def function(x: Tensor, ends: Tensor, key: Tensor, query: Tensor, value: Tensor) -> Tensor:
        source, target = ends
        gate = torch.sigmoid((x @ key)[target] + (x @ query)[source])
        return summed(gate * (x @ value)[source], target, x.shape[0]) + x

    nodes, edges = _sizes(draw)
    weights = (draw.weight(128, 128) for _ in range(3))
    return Layer(
        function, (draw.normal(nodes, 128), draw.graph(nodes, edges), *weights), {0: 0, 1: 1}
    )


def principal(draw: Draw) -> Layer:
    def function(x: Tensor, ends: Tensor) -> Tensor:
        (source, target), count = ends, x.shape[0]
        rows, degree = x[source], counted(target, count)
        mean = summed(rows, target, count) / degree
        squares = summed(rows * rows, target, count) / degree
        deviation = (functional.relu(squares - mean * mean) + 1e-5).sqrt()
        highest, lowest = greatest(rows, target, count), -greatest(-rows, target, count)
        extremes = (torch.where(torch.isinf(each), 0.0, each) for each in (highest, lowest))
        found = torch.cat([mean, *extremes, deviation], -1)
        scale = torch.log(degree + 1) / 2.3
        return torch.cat([found, found * scale, found / scale], -1)

    nodes, edges = _sizes(draw)
    return Layer(function, (draw.normal(nodes, 64), draw.graph(nodes, edges)), {0: 0, 1: 1})


def with_edge_features(draw: Draw) -> Layer:
    def function(x: Tensor, ends: Tensor, edge: Tensor, first: Tensor, second: Tensor) -> Tensor:
        rows = summed(functional.relu(x[ends[0]] + edge), ends[1], x.shape[0]) + x
        return functional.relu(rows @ first) @ second

    nodes, edges = _sizes(draw)
    inputs = (draw.normal(nodes, 128), draw.graph(nodes, edges), draw.normal(edges, 128))
    weights = (draw.weight(128, 128) for _ in range(2))
    return Layer(function, (*inputs, *weights), {0: 0, 1: 1, 2: 0})


def matrix_by_edge(draw: Draw) -> Layer:
    def function(x: Tensor, ends: Tensor, edge: Tensor, weight: Tensor) -> Tensor:
        matrices = (edge @ weight).view(-1, 16, 16)
        rows = torch.matmul(x[ends[0]].unsqueeze(1), matrices).squeeze(1)
        return summed(rows, ends[1], x.shape[0])

    nodes, edges = _sizes(draw)
    inputs = (draw.normal(nodes, 16), draw.graph(nodes, edges), draw.normal(edges, 8))
    return Layer(function, (*inputs, draw.weight(8, 256)), {0: 0, 1: 1, 2: 0})


def continuous_filter(draw: Draw) -> Layer:
    def function(
        x: Tensor, ends: Tensor, distance: Tensor, centres: Tensor, *weights: Tensor
    ) -> Tensor:
        first, second, before, after = weights
        basis = torch.exp(-0.5 * (distance[:, None] - centres) ** 2)
        cut = 0.5 * (torch.cos(distance * 0.314159) + 1)
        filters = (functional.softplus(basis @ first) @ second) * cut[:, None]
        rows = summed((x @ before)[ends[0]] * filters, ends[1], x.shape[0])
        return x + functional.softplus(rows) @ after

    nodes, edges = _sizes(draw, 2)
    inputs = (draw.normal(nodes, 128), draw.graph(nodes, edges), draw.normal(edges).abs())
    centres = torch.linspace(0, 10, 50, device=draw.device)
    weights = (draw.weight(rows, 128) for rows in (50, 128, 128, 128))
    return Layer(function, (*inputs, centres, *weights), {0: 0, 1: 1, 2: 0})


def equivariant(draw: Draw) -> Layer:
    def function(x: Tensor, place: Tensor, ends: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
        first, second, step, third, fourth = weights
        (source, target), count = ends, x.shape[0]
        offset = place[target] - place[source]
        length = (offset * offset).sum(-1, keepdim=True)
        pair = torch.cat([x[target], x[source], length], -1)
        message = functional.silu(functional.silu(pair @ first) @ second)
        place = place + summed(offset * (message @ step), target, count) / counted(target, count)
        rows = torch.cat([x, summed(message, target, count)], -1)
        return x + functional.silu(rows @ third) @ fourth, place

    nodes, edges = _sizes(draw)
    shapes = ((129, 64), (64, 64), (64, 1), (128, 64), (64, 64))
    inputs = (draw.normal(nodes, 64), draw.normal(nodes, 3), draw.graph(nodes, edges))
    return Layer(function, (*inputs, *(draw.weight(*each) for each in shapes)), {0: 0, 1: 0, 2: 1})


def mesh(draw: Draw) -> Layer:
    def function(x: Tensor, ends: Tensor, edge: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
        first, second, third, fourth = weights
        pair = torch.cat([x[ends[1]], x[ends[0]], edge], -1)
        found = functional.layer_norm(functional.relu(pair @ first) @ second, (128,))
        rows = torch.cat([x, summed(found, ends[1], x.shape[0])], -1)
        new = functional.layer_norm(functional.relu(rows @ third) @ fourth, (128,))
        return x + new, edge + found

    nodes, edges = _sizes(draw, 2)
    inputs = (draw.normal(nodes, 128), draw.graph(nodes, edges), draw.normal(edges, 128))
    weights = (draw.weight(rows, 128) for rows in (384, 128, 256, 128))
    return Layer(function, (*inputs, *weights), {0: 0, 1: 1, 2: 0})


def triplets(draw: Draw) -> Layer:
    def function(x: Tensor, source: Tensor, target: Tensor, basis: Tensor) -> Tensor:
        return x + summed(x[source] * basis, target, x.shape[0])

    edges, count = draw.size(_EDGES // 4, 50), draw.size(_EDGES, 200)
    inputs = (draw.normal(edges, 64), draw.below(edges, count), draw.below(edges, count))
    return Layer(function, (*inputs, draw.normal(count, 64)), {0: 0, 1: 0, 2: 0, 3: 0})


def relations(draw: Draw) -> Layer:
    def function(x: Tensor, ends: Tensor, kind: Tensor, bases: Tensor, shares: Tensor) -> Tensor:
        rows = torch.einsum("nd,bdo->nbo", x, bases)
        return summed((rows[ends[0]] * shares[kind][:, :, None]).sum(1), ends[1], x.shape[0])

    nodes, edges = _sizes(draw)
    inputs = (draw.normal(nodes, 64), draw.graph(nodes, edges), draw.below(16, edges))
    weights = (draw.normal(4, 64, 64) / 8, draw.normal(16, 4))
    return Layer(function, (*inputs, *weights), {0: 0, 1: 1, 2: 0})


def propagation(draw: Draw) -> Layer:
    def function(x: Tensor, ends: Tensor, weight: Tensor) -> Tensor:
        rows = x
        for _ in range(10):
            messages = rows[ends[0]] * weight[:, None]
            rows = 0.9 * summed(messages, ends[1], x.shape[0]) + 0.1 * x
        return rows

    nodes, edges = _sizes(draw)
    inputs = (draw.normal(nodes, 64), draw.graph(nodes, edges), draw.normal(edges) / 10)
    return Layer(function, inputs, {0: 0, 1: 1, 2: 0})


def light(draw: Draw) -> Layer:
    def function(x: Tensor, ends: Tensor) -> Tensor:
        norm = counted(ends[1], x.shape[0])[:, 0].rsqrt()
        weight = (norm[ends[0]] * norm[ends[1]]).to(x.dtype)
        total = x
        for _ in range(3):
            x = summed(x[ends[0]] * weight[:, None], ends[1], x.shape[0])
            total = total + x
        return total / 4

    nodes, edges = _sizes(draw)
    inputs = (draw.normal(nodes, 64, dtype=torch.bfloat16), draw.graph(nodes, edges))
    return Layer(function, inputs, {0: 0, 1: 1})


def readout(draw: Draw) -> Layer:
    graphs = draw.size(4096)

    def function(x: Tensor, graph: Tensor) -> Tensor:
        total = summed(x, graph, graphs)
        return torch.cat([total, total / counted(graph, graphs), greatest(x, graph, graphs)], -1)

    nodes, _ = _sizes(draw)
    inputs = (draw.normal(nodes, 128), draw.below(graphs, nodes).sort()[0])
    return Layer(function, inputs, {0: 0, 1: 0})


def attention_pooling(draw: Draw) -> Layer:
    graphs = draw.size(4096)

    def function(x: Tensor, graph: Tensor, gate: Tensor) -> Tensor:
        logits = x @ gate
        weights = torch.exp(logits - greatest(logits, graph, graphs)[graph])
        total = summed(weights, graph, graphs)
        return summed(weights / total[graph] * x, graph, graphs)

    nodes, _ = _sizes(draw)
    inputs = (draw.normal(nodes, 128), draw.below(graphs, nodes).sort()[0], draw.weight(128, 1))
    return Layer(function, inputs, {0: 0, 1: 0})


def hyperedges(draw: Draw) -> Layer:
    count = draw.size(20_000)

    def function(x: Tensor, pairs: Tensor) -> Tensor:
        node, edge = pairs
        rows = summed(x[node], edge, count) / counted(edge, count)
        return summed(rows[edge], node, x.shape[0]) / counted(node, x.shape[0])

    nodes, pairs = _sizes(draw)
    both = torch.stack([draw.below(nodes, pairs), draw.below(count, pairs)])
    return Layer(function, (draw.normal(nodes, 128), both), {0: 0, 1: 1})


def heads(draw: Draw) -> Layer:
    def function(x: Tensor, ends: Tensor, *weights: Tensor) -> Tensor:
        (source, target), count = ends, x.shape[0]
        key, query, value = ((x @ each).view(-1, 8, 16) for each in weights)
        logits = (query[target] * key[source]).sum(-1) / 4
        shares = torch.exp(logits - greatest(logits, target, count)[target])
        total = summed(shares, target, count) + 1e-16
        rows = (shares / total[target])[..., None] * value[source]
        return summed(rows, target, count).flatten(1)

    nodes, edges = _sizes(draw)
    weights = (draw.weight(128, 128) for _ in range(3))
    return Layer(
        function, (draw.normal(nodes, 128), draw.graph(nodes, edges), *weights), {0: 0, 1: 1}
    )


GRAPHS: Mapping[str, Make] = {
    "ResGatedGraphConv": gated,
    "PNA: mean, extremes, deviation": principal,
    "GINEConv": with_edge_features,
    "NNConv, 16 x 16 by edge": matrix_by_edge,
    "SchNet": continuous_filter,
    "EGNN": equivariant,
    "MeshGraphNet": mesh,
    "DimeNet, triplets": triplets,
    "RGCN, 4 bases": relations,
    "APPNP, 10 steps": propagation,
    "LightGCN, bfloat16": light,
    "readout of 4 096 graphs": readout,
    "attention pooling": attention_pooling,
    "hypergraph convolution": hyperedges,
    "HGT, 8 heads": heads,
}
