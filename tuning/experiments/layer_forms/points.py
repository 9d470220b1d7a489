"""Layers of clouds of points and of particles."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional

from .layer import Draw, Layer, Make, counted, summed


def _clouds(tensor: Tensor) -> Tensor:
    return torch.arange(tensor.shape[0], device=tensor.device)[:, None, None]


def grouped(draw: Draw) -> Layer:
    def function(
        place: Tensor, x: Tensor, centre: Tensor, near: Tensor, first: Tensor, second: Tensor
    ) -> Tensor:
        cloud = _clouds(x)
        rows = torch.cat([place[cloud, near] - centre[:, :, None], x[cloud, near]], -1)
        return functional.relu(functional.relu(rows @ first) @ second).amax(2)

    clouds, points, centres = draw.size(16, 2), draw.size(4096, 16), draw.size(1024, 4)
    inputs = (draw.normal(clouds, points, 3), draw.normal(clouds, points, 64))
    near = draw.below(points, clouds, centres, 32)
    weights = (draw.weight(67, 64), draw.weight(64, 128))
    more = (draw.normal(clouds, centres, 3), near, *weights)
    return Layer(function, (*inputs, *more), {0: 0, 1: 0, 2: 0, 3: 0})


def nearest(draw: Draw) -> Layer:
    def function(x: Tensor, weight: Tensor) -> Tensor:
        squares = (x * x).sum(-1)
        closeness = 2 * x @ x.transpose(1, 2) - squares[:, :, None] - squares[:, None]
        rows = x[_clouds(x), closeness.topk(20, -1)[1]]
        own = x[:, :, None].expand_as(rows)
        return functional.leaky_relu(torch.cat([rows - own, own], -1) @ weight, 0.2).amax(2)

    x = draw.normal(draw.size(16, 2), draw.size(1024, 32), 64)
    return Layer(function, (x, draw.weight(128, 64)), {0: 0})


def voxels(draw: Draw) -> Layer:
    def function(place: Tensor, x: Tensor) -> Tensor:
        cell = ((place.clamp(-3, 2.99) + 3) * 8).long()
        index = (cell[:, 0] * 48 + cell[:, 1]) * 48 + cell[:, 2]
        return summed(x, index, 48**3) / counted(index, 48**3)

    count = draw.size(1_000_000)
    return Layer(function, (draw.normal(count, 3), draw.normal(count, 16)), {0: 0, 1: 0})


def pillars(draw: Draw) -> Layer:
    def function(x: Tensor, place: Tensor) -> Tensor:
        canvas = torch.zeros(4, 64, 496 * 432, device=x.device)
        channel = torch.arange(64, device=x.device)[None]
        index = (place[:, 0, None], channel, (place[:, 1] * 432 + place[:, 2])[:, None])
        return canvas.index_put(index, x).view(4, 64, 496, 432)

    count = draw.size(48_000)
    # Each pillar has a place of its own.
    where = torch.randperm(4 * 496 * 432, generator=draw.generator, device=draw.device)[:count]
    place = torch.stack([where // (496 * 432), where // 432 % 496, where % 432], 1)
    return Layer(function, (draw.normal(count, 64), place), {0: 0, 1: 0})


def particles(draw: Draw) -> Layer:
    side = 64

    def function(place: Tensor, mass: Tensor) -> Tensor:
        at = (place.clamp(-2.9, 2.9) + 3) * (side - 2) / 6
        part, cell = at - at.floor(), at.floor().long()
        grid, corners = torch.zeros(side**3, device=mass.device), []
        for corner in product((0, 1), repeat=3):
            weight = torch.ones_like(mass)
            for axis, step in enumerate(corner):
                weight = weight * (part[:, axis] if step else 1 - part[:, axis])
            x, y, z = (cell[:, axis] + step for axis, step in enumerate(corner))
            corners.append(((x * side + y) * side + z, weight))
            grid = grid.index_add(0, corners[-1][0], mass * weight)
        found = torch.zeros_like(mass)
        for index, weight in corners:
            found = found + grid[index] * weight
        return found

    count = draw.size(1_000_000)
    return Layer(function, (draw.normal(count, 3), draw.normal(count)), {0: 0, 1: 0})


POINTS: Mapping[str, Make] = {
    "PointNet++, grouping": grouped,
    "DGCNN, neighbours and EdgeConv": nearest,
    "means of voxels": voxels,
    "PointPillars, canvas": pillars,
    "particles to a grid and back": particles,
}
