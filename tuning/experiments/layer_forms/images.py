"""Layers of networks for images."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from .layer import Draw, Layer, Make


def warped(draw: Draw) -> Layer:
    def function(x: Tensor, flow: Tensor) -> Tensor:
        high, wide = x.shape[2:]
        rows = torch.arange(high, device=x.device, dtype=x.dtype)[None, :, None]
        columns = torch.arange(wide, device=x.device, dtype=x.dtype)[None, None]
        place = (
            2 * (columns + flow[:, 0]) / (wide - 1) - 1,
            2 * (rows + flow[:, 1]) / (high - 1) - 1,
        )
        return functional.grid_sample(x, torch.stack(place, -1), align_corners=True)

    side = draw.size(512, 16)
    inputs = (draw.normal(8, 32, side, side), draw.normal(8, 2, side, side) * 3)
    return Layer(function, inputs, {0: 0, 1: 0})


def deformable(draw: Draw) -> Layer:
    sides = [side for side in (64, 32, 16, 8) if side <= draw.size(64)]
    queries, heads, samples = draw.size(900, 6), 8, 4
    each = len(sides) * samples

    def function(value: Tensor, place: Tensor, weight: Tensor) -> Tensor:
        batch, at, found = value.shape[0], 0, []
        for level, side in enumerate(sides):
            part = value[:, at : at + side * side].flatten(2).transpose(1, 2)
            grid = (2 * place[:, :, :, level] - 1).transpose(1, 2).flatten(0, 1)
            image = part.reshape(batch * heads, 32, side, side)
            found.append(functional.grid_sample(image, grid, align_corners=False))
            at += side * side
        shares = weight.transpose(1, 2).reshape(batch * heads, 1, queries, each)
        total = (torch.stack(found, -2).flatten(-2) * shares).sum(-1)
        return total.view(batch, heads * 32, queries).transpose(1, 2)

    value = draw.normal(8, sum(side * side for side in sides), heads, 32)
    place = draw.normal(8, queries, heads, len(sides), samples, 2).sigmoid()
    weight = draw.normal(8, queries, heads, each).softmax(-1)
    inputs = (value, place, weight.view(8, queries, heads, len(sides), samples))
    return Layer(function, inputs, {0: 0, 1: 0, 2: 0})


def windows(draw: Draw) -> Layer:
    channels, heads, window = 96, 3, 7
    side = 7 * draw.size(8, 2)

    def function(x: Tensor, table: Tensor, place: Tensor, project: Tensor, out: Tensor) -> Tensor:
        batch, across = x.shape[0], side // window
        rows = torch.roll(x, (-3, -3), (1, 2)).view(batch, across, window, across, window, channels)
        rows = rows.permute(0, 1, 3, 2, 4, 5).reshape(-1, window * window, channels)
        parts = (rows @ project).view(-1, window * window, 3, heads, channels // heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        bias = table[place].view(window * window, window * window, heads).permute(2, 0, 1)
        scores = query * (channels // heads) ** -0.5 @ key.transpose(-1, -2) + bias
        rows = (scores.softmax(-1) @ value).transpose(1, 2).reshape(-1, window * window, channels)
        rows = (rows @ out).view(batch, across, across, window, window, channels)
        image = rows.permute(0, 1, 3, 2, 4, 5).reshape(batch, side, side, channels)
        return torch.roll(image, (3, 3), (1, 2)) + x

    cells = torch.stack(torch.meshgrid(torch.arange(7), torch.arange(7), indexing="ij")).flatten(1)
    apart = (cells[:, :, None] - cells[:, None]) + 6
    place = (apart[0] * 13 + apart[1]).flatten().to(draw.device)
    x = draw.normal(draw.size(32, 2), side, side, channels)
    weights = (draw.weight(channels, 3 * channels), draw.weight(channels, channels))
    return Layer(function, (x, draw.normal(169, heads), place, *weights), {0: 0})


def unpooled(draw: Draw) -> Layer:
    def function(x: Tensor) -> Tensor:
        return functional.max_unpool2d(*functional.max_pool2d(x, 2, return_indices=True), 2)

    side = draw.size(128, 8)
    return Layer(function, (draw.normal(draw.size(32, 2), 64, side, side),), {0: 0})


def masked(draw: Draw) -> Layer:
    def function(x: Tensor, noise: Tensor) -> Tensor:
        order = noise.argsort(1)
        back = order.argsort(1)
        wide = x.shape[2]
        kept = x.gather(1, order[:, :49, None].expand(-1, -1, wide))
        none = torch.zeros(x.shape[0], 147, wide, device=x.device)
        return torch.cat([kept, none], 1).gather(1, back[:, :, None].expand(-1, -1, wide))

    images = draw.size(128, 2)
    return Layer(function, (draw.normal(images, 196, 768), draw.normal(images, 196)), {0: 0, 1: 0})


def histograms(draw: Draw) -> Layer:
    def function(x: Tensor) -> Tensor:
        bins = (x.sigmoid() * 255).long()
        counts = torch.zeros(x.shape[0], 256, device=x.device)
        counts = counts.scatter_add(1, bins, torch.ones_like(x))
        return (counts.cumsum(1) / x.shape[1]).gather(1, bins)

    return Layer(function, (draw.normal(draw.size(64, 2), draw.size(65_536, 64)),), {0: 0})


IMAGES: Mapping[str, Make] = {
    "warp by a flow": warped,
    "deformable attention": deformable,
    "Swin, shifted windows": windows,
    "max_unpool2d": unpooled,
    "MAE, shuffled and restored": masked,
    "histograms matched": histograms,
}
