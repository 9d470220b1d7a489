"""Scatters of other models: embedding bags, warped images, bird's-eye grids, experts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import isqrt

import torch

from . import libraries
from .case import Case, bytes_of
from .graph import FEATURES, indices

#: Before they are scaled: bags and rows of the table, the image, the cameras, the tokens.
_BAGS, _IN_A_BAG = 100_000, 10
_CHANNELS, _HEIGHT, _WIDTH = 64, 436, 1024
#: Parts of a pixel that a flow is whole in: float32 holds where it takes a pixel without rounding.
_PARTS = 4096
_PIXELS, _DEPTHS, _CONTEXT, _GRID = 6 * 16 * 44, 59, 80, 128
_TOKENS, _EXPERTS_EACH, _WIDE = 4096, 2, 4096


class Bags(torch.nn.Module):
    """The sums of the embeddings in bags."""

    def forward(
        self, table: torch.Tensor, tokens: torch.Tensor, starts: torch.Tensor
    ) -> torch.Tensor:
        return torch.nn.functional.embedding_bag(tokens, table, starts, mode="sum")


class Splat(torch.nn.Module):
    """An image (channels, height, width), each pixel added to the four where a flow takes it."""

    def forward(self, image: torch.Tensor, flow: torch.Tensor) -> torch.Tensor:
        result = torch.zeros_like(image).flatten(1)
        for place, weight in corners(flow):
            values = image * weight.to(image.dtype)
            result = result.index_add(1, place, values.flatten(1))
        return result.view(image.shape)


def corners(flow: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The four pixels where a flow (..., 2, height, width) takes every pixel.

    Of each the places (..., height * width) in an image, and how much of the pixel goes there
    (..., height, width).
    """
    height, width = flow.shape[-2:]
    x = torch.arange(width, device=flow.device) + flow[..., 0, :, :]
    y = torch.arange(height, device=flow.device)[:, None] + flow[..., 1, :, :]
    for dx in (0, 1):
        for dy in (0, 1):
            column, row = x.floor() + dx, y.floor() + dy
            weight = (1 - (x - column).abs()) * (1 - (y - row).abs())
            inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
            at = row.clamp(0, height - 1) * width + column.clamp(0, width - 1)
            yield at.long().flatten(-2), weight * inside


class LiftSplat(torch.nn.Module):
    """Features of pixels at each depth, times the depth's chance, summed in cells of a grid."""

    def forward(
        self, context: torch.Tensor, chances: torch.Tensor, cells: torch.Tensor
    ) -> torch.Tensor:
        points = (context[:, None, :] * chances[:, :, None]).flatten(0, 1)
        return context.new_zeros(_GRID * _GRID, context.shape[1]).index_add(0, cells, points)


class Combine(torch.nn.Module):
    """The answers of experts, times their gates, summed at the tokens that they are for."""

    def forward(
        self, answers: torch.Tensor, gates: torch.Tensor, tokens: torch.Tensor
    ) -> torch.Tensor:
        result = answers.new_zeros(answers.shape[0] // _EXPERTS_EACH, answers.shape[1])
        return result.index_add(0, tokens, answers * gates[:, None])


def bags(distribution: str, dtype: torch.dtype, scale: int) -> Case:
    """Bags of ten on average, whose tokens come from a distribution."""
    generator = torch.Generator().manual_seed(0)
    rows = max(16, _BAGS // scale)
    table = torch.randn(rows, FEATURES, generator=generator).to(dtype)
    tokens = indices(distribution, rows, rows * _IN_A_BAG, 1)
    bag = indices("uniform", rows, rows * _IN_A_BAG, 2).sort().values
    counts = torch.bincount(bag, minlength=rows)
    starts = counts.cumsum(0) - counts

    def matrix(table: torch.Tensor, tokens: torch.Tensor, starts: torch.Tensor) -> libraries.Call:
        ones = table.new_ones(len(tokens))
        return libraries.product(table, ones, tokens, bag.to(tokens.device), len(starts))

    moved = (len(tokens) + rows) * FEATURES * table.element_size() + bytes_of(tokens, starts)
    inputs = (table, tokens, starts)
    prepared = {libraries.CSR: matrix}
    counts, varying = counts[:, None], ((), (0,), (0,))
    return Case(Bags().eval(), inputs, counts, (), rows, moved, varying, prepared)


def splat(dtype: torch.dtype, scale: int) -> Case:
    """Noise of some pixels moves an image, whose values are not negative."""
    generator = torch.Generator().manual_seed(0)
    height, width = (max(8, size // isqrt(scale)) for size in (_HEIGHT, _WIDTH))
    image = torch.rand(_CHANNELS, height, width, generator=generator).to(dtype)
    noise = 4 * torch.randn(2, height, width, generator=generator)
    # Rounded places would change small weights by more than any bound on sums allows.
    flow = (noise * _PARTS).round() / _PARTS
    moved = 5 * bytes_of(image) + bytes_of(flow)
    # How many meet at a pixel is bounded by how many there are within a few pixels.
    counts = torch.full((1,), 64)
    places = tuple(place for place, _ in corners(flow))
    inputs, varying = (image, flow), ((1, 2), (1, 2))
    return Case(Splat().eval(), inputs, counts, places, height * width, moved, varying)


def lift_splat(dtype: torch.dtype, scale: int) -> Case:
    """Six cameras of 16 x 44 pixels and 59 depths onto a grid of 128 x 128 cells."""
    generator = torch.Generator().manual_seed(0)
    pixels = max(4, _PIXELS // scale)
    context = torch.randn(pixels, _CONTEXT, generator=generator).to(dtype)
    chances = torch.rand(pixels, _DEPTHS, generator=generator).to(dtype)
    cells = indices("uniform", _GRID * _GRID, pixels * _DEPTHS, 1)
    counts = torch.bincount(cells, minlength=_GRID * _GRID)[:, None]

    def matrix(context: torch.Tensor, chances: torch.Tensor, cells: torch.Tensor) -> libraries.Call:
        pixel = torch.arange(pixels, device=cells.device).repeat_interleave(_DEPTHS)
        return libraries.product(context, chances.flatten(), pixel, cells, _GRID * _GRID)

    result = _GRID * _GRID * _CONTEXT * context.element_size()
    # The points of a pixel follow each other, and share its row.
    moved = bytes_of(context, chances, cells) + result
    inputs = (context, chances, cells)
    prepared, varying = {libraries.CSR: matrix}, ((0,), (0,), (0,))
    extent, module = _GRID * _GRID, LiftSplat().eval()
    return Case(module, inputs, counts, (cells,), extent, moved, varying, prepared)


def combine(dtype: torch.dtype, scale: int) -> Case:
    """Two experts for each token, whose answers stand in the order of experts."""
    generator = torch.Generator().manual_seed(0)
    tokens = max(8, _TOKENS // scale)
    slots = tokens * _EXPERTS_EACH
    answers = torch.randn(slots, _WIDE, generator=generator).to(dtype)
    gates = torch.rand(slots, generator=generator).to(dtype)
    goes_to = torch.randperm(slots, generator=generator) // _EXPERTS_EACH
    counts = torch.full((1,), _EXPERTS_EACH)

    def matrix(answers: torch.Tensor, gates: torch.Tensor, goes_to: torch.Tensor) -> libraries.Call:
        slot = torch.arange(slots, device=goes_to.device)
        return libraries.product(answers, gates, slot, goes_to, tokens)

    moved = bytes_of(answers, gates, goes_to) + tokens * _WIDE * answers.element_size()
    inputs = (answers, gates, goes_to)
    prepared, varying = {libraries.CSR: matrix}, ((0,), (0,), (0,))
    return Case(Combine().eval(), inputs, counts, (goes_to,), tokens, moved, varying, prepared)


#: What each row is made by, given the type and the scale.
APPLICATIONS: dict[str, Callable[[torch.dtype, int], Case]] = {
    "embedding bag, uniform": partial(bags, "uniform"),
    "embedding bag, zipf(1.2)": partial(bags, "zipf(1.2)"),
    "image splat": splat,
    "lift-splat": lift_splat,
    "MoE combine": combine,
}
