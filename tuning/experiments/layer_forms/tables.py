"""Layers that read large tables: recommenders and classes of faces."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from .layer import Draw, Layer, Make


def interactions(draw: Draw) -> Layer:
    def function(x: Tensor, index: Tensor, bottom: Tensor, top: Tensor, *tables: Tensor) -> Tensor:
        dense = functional.relu(x @ bottom)
        bags = [table[index[:, at]].sum(1) for at, table in enumerate(tables)]
        rows = torch.stack([dense, *bags], 1)
        first, second = torch.tril_indices(27, 27, -1, device=x.device)
        return torch.cat([dense, (rows @ rows.transpose(1, 2))[:, first, second]], 1) @ top

    count, users = draw.size(100_000), draw.size(8192, 4)
    weights = (draw.weight(13, 64), draw.weight(64 + 351, 256))
    tables = (draw.normal(count, 64) for _ in range(26))
    inputs = (draw.normal(users, 13), draw.below(count, users, 26, 3))
    return Layer(function, (*inputs, *weights, *tables), {0: 0, 1: 0})


def factors(draw: Draw) -> Layer:
    def function(index: Tensor, table: Tensor, bias: Tensor, deep: Tensor, out: Tensor) -> Tensor:
        rows = table[index]
        total = rows.sum(1)
        pairs = 0.5 * (total * total - (rows * rows).sum(1)).sum(1, keepdim=True)
        logits = functional.relu(rows.flatten(1) @ deep) @ out
        return torch.sigmoid(bias[index].sum(1) + pairs + logits)

    count = draw.size(1_000_000)
    tables = (draw.normal(count, 16) / 16, draw.normal(count, 1))
    weights = (draw.weight(26 * 16, 64), draw.weight(64, 1))
    return Layer(function, (draw.below(count, draw.size(16_384, 4), 26), *tables, *weights), {0: 0})


def margins(draw: Draw) -> Layer:
    def function(cosines: Tensor, label: Tensor) -> Tensor:
        own = cosines.gather(1, label[:, None])
        wider = torch.cos(torch.acos(own.clamp(-0.999, 0.999)) + 0.5)
        return functional.cross_entropy(64 * cosines.scatter(1, label[:, None], wider), label)

    classes, faces = draw.size(50_000), draw.size(1024)
    inputs = (draw.normal(faces, classes).tanh(), draw.below(classes, faces))
    return Layer(function, inputs, {0: 0, 1: 0})


def step(draw: Draw) -> Layer:
    def function(table: Tensor, index: Tensor, gradient: Tensor) -> Tensor:
        sums = torch.zeros_like(table).index_add(0, index.flatten(), gradient.flatten(0, 1))
        return table - 0.1 * sums

    count, users = draw.size(100_000), draw.size(512, 4)
    inputs = (draw.normal(count, 128), draw.below(count, users, 128))
    return Layer(function, (*inputs, draw.normal(users, 128, 128)), {1: 0, 2: 0})


TABLES: Mapping[str, Make] = {
    "DLRM, 26 bags": interactions,
    "DeepFM": factors,
    "ArcFace, margins": margins,
    "table, gradient and step": step,
}
