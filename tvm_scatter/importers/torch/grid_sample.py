"""Sampling an image at the positions of a grid, and its gradient, in PyTorch's own operators.

Each sample is a weighted sum of neighbouring pixels, its taps. Along each axis these have
positions, weights, and slopes: how a weight changes with the grid. The gradient of the image is one
scatter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

_BILINEAR, _NEAREST = 0, 1
_ZEROS, _BORDER = 0, 1
#: PyTorch's parameter of bicubic interpolation.
_CUBIC = -0.75


class _Taps(NamedTuple):
    """Along one axis, each of shape (batch, samples, taps)."""

    positions: Any
    weights: Any
    slopes: Any


def grid_sample(
    image: Any, grid: Any, interpolation: int, padding: int, align_corners: bool
) -> Any:
    """``grid_sampler_3d``: (batch, channels, \\*sizes of the grid)."""
    taps = _taps(image, grid, interpolation, padding, align_corners)
    batch, channels = image.shape[:2]
    samples = (_pixels(image, taps) * _product([axis.weights for axis in taps])[:, None]).sum(-1)
    return samples.reshape(batch, channels, *grid.shape[1:-1])


def grid_sample_backward(
    gradient: Any,
    image: Any,
    grid: Any,
    interpolation: int,
    padding: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[Any, Any]:
    """``grid_sampler_2d_backward`` and ``grid_sampler_3d_backward``."""
    import torch

    taps = _taps(image, grid, interpolation, padding, align_corners)
    batch, channels = image.shape[:2]
    gradient = gradient.reshape(batch, channels, -1, 1)
    of_image, of_grid = torch.zeros_like(image), torch.zeros_like(grid)
    if output_mask[0]:
        updates = gradient * _product([axis.weights for axis in taps])[:, None]
        index = _index(image, taps)
        flat = torch.zeros_like(image.reshape(batch, channels, -1))
        of_image = flat.scatter_add(2, index, updates.flatten(2)).reshape(image.shape)
    if output_mask[1] and interpolation != _NEAREST:
        of_pixels = (gradient * _pixels(image, taps)).sum(1)
        slopes = [
            (of_pixels * _product([a.slopes if a is axis else a.weights for a in taps])).sum(-1)
            for axis in taps
        ]
        # The last axis of the image is the first coordinate of the grid.
        of_grid = torch.stack(slopes[::-1], -1).reshape(grid.shape)
    return of_image, of_grid


def _pixels(image: Any, taps: Sequence[_Taps]) -> Any:
    """The pixels that are sampled: (batch, channels, samples, taps)."""
    batch, channels = image.shape[:2]
    pixels = image.reshape(batch, channels, -1).gather(2, _index(image, taps))
    return pixels.reshape(batch, channels, taps[0].positions.shape[1], -1)


def _index(image: Any, taps: Sequence[_Taps]) -> Any:
    """Positions in the flattened image, the same for all channels."""
    flat = taps[0].positions
    for size, axis in zip(image.shape[3:], taps[1:], strict=True):
        flat = (flat[..., None] * size + axis.positions[:, :, None]).flatten(2)
    return flat.flatten(1)[:, None].expand(-1, image.shape[1], -1)


def _product(factors: Sequence[Any]) -> Any:
    """A factor for each combination of the taps of all axes."""
    product = factors[0]
    for factor in factors[1:]:
        product = (product[..., None] * factor[:, :, None]).flatten(2)
    return product


def _taps(
    image: Any, grid: Any, interpolation: int, padding: int, align_corners: bool
) -> list[_Taps]:
    """The taps along each axis of the image."""
    coordinates = grid.reshape(grid.shape[0], -1, grid.shape[-1]).unbind(-1)[::-1]
    along = _cubic if interpolation not in (_BILINEAR, _NEAREST) else _linear
    return [
        along(at, size, interpolation, padding, align_corners)
        for at, size in zip(coordinates, image.shape[2:], strict=True)
    ]


def _linear(at: Any, size: int, interpolation: int, padding: int, align_corners: bool) -> _Taps:
    """One or two pixels beside a position."""
    import torch

    at, step = _unnormalized(at, size, align_corners)
    at, direction = _padded(at, size, padding, align_corners)
    if interpolation == _NEAREST:
        taps = torch.round(at)[..., None]
        return _inside(taps, torch.ones_like(taps), torch.zeros_like(taps), size)
    first = torch.floor(at)
    fraction = at - first
    slope = step * direction
    return _inside(
        torch.stack([first, first + 1], -1),
        torch.stack([1 - fraction, fraction], -1),
        torch.stack([-slope, slope], -1),
        size,
    )


def _cubic(at: Any, size: int, interpolation: int, padding: int, align_corners: bool) -> _Taps:
    """Four pixels around a position. Each of them is padded, not the position."""
    import torch

    at, step = _unnormalized(at, size, align_corners)
    first = torch.floor(at)
    fraction = at - first
    distances = [fraction + 1, fraction, 1 - fraction, 2 - fraction]
    signs = [1, 1, -1, -1]
    outer = [True, False, False, True]
    weights = [_cubic_weight(d, far) for d, far in zip(distances, outer, strict=True)]
    slopes = [
        _cubic_slope(d, far) * sign * step
        for d, far, sign in zip(distances, outer, signs, strict=True)
    ]
    taps = torch.stack([first - 1, first, first + 1, first + 2], -1)
    taps, _ = _padded(taps, size, padding, align_corners)
    return _inside(torch.round(taps), torch.stack(weights, -1), torch.stack(slopes, -1), size)


def _cubic_weight(d: Any, outer: bool) -> Any:
    if outer:
        return ((_CUBIC * d - 5 * _CUBIC) * d + 8 * _CUBIC) * d - 4 * _CUBIC
    return ((_CUBIC + 2) * d - (_CUBIC + 3)) * d * d + 1


def _cubic_slope(d: Any, outer: bool) -> Any:
    if outer:
        return (3 * _CUBIC * d - 10 * _CUBIC) * d + 8 * _CUBIC
    return (3 * (_CUBIC + 2) * d - 2 * (_CUBIC + 3)) * d


def _unnormalized(at: Any, size: int, align_corners: bool) -> tuple[Any, float]:
    """Coordinates of pixels in place of those from -1 to 1, and by how much they are stretched."""
    if align_corners:
        return (at + 1) / 2 * (size - 1), (size - 1) / 2
    return ((at + 1) * size - 1) / 2, size / 2


def _padded(at: Any, size: int, padding: int, align_corners: bool) -> tuple[Any, Any]:
    """Coordinates after padding, and how they change: by 1, -1, or 0 at a border."""
    import torch

    if padding == _ZEROS:
        return at, torch.ones_like(at)
    direction = torch.ones_like(at)
    if padding != _BORDER:
        at, direction = _reflected(at, size, align_corners)
    moves = (at > 0) & (at < size - 1)
    return at.clamp(0, size - 1), torch.where(moves, direction, torch.zeros_like(at))


def _reflected(at: Any, size: int, align_corners: bool) -> tuple[Any, Any]:
    """Coordinates reflected at the outer pixels, or at their outer edges."""
    import torch

    low, span = (0.0, size - 1) if align_corners else (-0.5, size)
    if span == 0:
        return torch.zeros_like(at), torch.zeros_like(at)
    offset = at - low
    distance = offset.abs()
    flips = torch.floor(distance / span)
    rest = distance - flips * span
    even = torch.remainder(flips, 2) == 0
    direction = torch.where(even, 1.0, -1.0) * torch.where(offset < 0, -1.0, 1.0)
    return torch.where(even, rest + low, span - rest + low), direction.to(at.dtype)


def _inside(taps: Any, weights: Any, slopes: Any, size: int) -> _Taps:
    """Taps of which those outside of the image count nothing."""
    import torch

    inside = (taps >= 0) & (taps < size)
    none = torch.zeros_like(weights)
    return _Taps(
        taps.clamp(0, size - 1).long(),
        torch.where(inside, weights, none),
        torch.where(inside, slopes, none),
    )
