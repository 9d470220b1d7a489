"""Object detectors: features written to where they belong."""

from __future__ import annotations

from typing import Any

import torch


class PointPillarsScatter(torch.nn.Module):
    """Pillar features written into a bird's-eye grid, as in PointPillars."""

    def __init__(self, channels: int, height: int, width: int) -> None:
        super().__init__()
        self.channels, self.height, self.width = channels, height, width

    def forward(self, features: torch.Tensor, coordinates: torch.Tensor) -> torch.Tensor:
        canvas = features.new_zeros(self.channels, self.height * self.width)
        canvas[:, coordinates[:, 0] * self.width + coordinates[:, 1]] = features.t()
        return canvas.view(1, self.channels, self.height, self.width)


class LevelAssembly(torch.nn.Module):
    """Regions pooled from several pyramid levels put back in order, as in Mask R-CNN."""

    def forward(self, *levels_and_indices: torch.Tensor) -> torch.Tensor:
        half = len(levels_and_indices) // 2
        levels, indices = levels_and_indices[:half], levels_and_indices[half:]
        count = sum(level.shape[0] for level in levels)
        out = levels[0].new_zeros(count, *levels[0].shape[1:])
        for level, index in zip(levels, indices, strict=True):
            out[index] = level
        return out


def point_pillars(size: str) -> tuple[Any, tuple[Any, ...]]:
    """12 000 pillars of 64 features into a grid of 496 x 432."""
    pillars, channels, height, width = {
        "full": (12_000, 64, 496, 432),
        "small": (40, 8, 12, 10),
    }[size]
    places = torch.randperm(height * width)[:pillars]
    coordinates = torch.stack([places // width, places % width], dim=1)
    return (
        PointPillarsScatter(channels, height, width).eval(),
        (torch.randn(pillars, channels), coordinates),
    )


def level_assembly(size: str) -> tuple[Any, tuple[Any, ...]]:
    """1000 regions of 256 x 7 x 7 from four levels."""
    counts, shape = {
        "full": ((550, 250, 150, 50), (256, 7, 7)),
        "small": ((11, 5, 3, 1), (4, 3, 3)),
    }[size]
    order = torch.randperm(sum(counts))
    indices = [index.contiguous() for index in order.split(list(counts))]
    levels = [torch.randn(count, *shape) for count in counts]
    return LevelAssembly().eval(), (*levels, *indices)
