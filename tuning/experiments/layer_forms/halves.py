"""Layers in 16 bits, as most are trained and served: products are on tensor cores."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from .graphs import gated
from .images import windows
from .language import dispatched, every_expert, routed
from .layer import Draw, Layer, Make, counted, summed

_HALF = torch.bfloat16


def in_halves(make: Make) -> Make:
    """A layer whose numbers have 16 bits."""

    def made(draw: Draw) -> Layer:
        layer = make(draw)
        inputs = (each.to(_HALF) if each.is_floating_point() else each for each in layer.inputs)
        return Layer(layer.function, tuple(inputs), layer.unknown)

    return made


def _scaled(x: Tensor, scale: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * scale


def _turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat([-second, first], -1) * sine


def _heads(x: Tensor, wide: int) -> Tensor:
    return x.view(*x.shape[:2], -1, wide).transpose(1, 2)


def _gated(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return (functional.silu(x @ gate) * (x @ up)) @ down


def _block_weights(draw: Draw, wide: int, keys: int, inner: int) -> tuple[Tensor, ...]:
    shapes = [(wide, wide), (wide, keys), (wide, keys), (wide, wide)]
    shapes += [(wide, inner), (wide, inner), (inner, wide)]
    return tuple(draw.weight(*shape) for shape in shapes)


def _angles(draw: Draw, length: int, wide: int) -> tuple[Tensor, Tensor]:
    rates = 1e4 ** (-torch.arange(0, wide, 2, device=draw.device) / wide)
    angles = torch.arange(length, device=draw.device)[:, None] * rates.repeat(2)
    return angles.cos(), angles.sin()


def prompt(draw: Draw) -> Layer:
    """A block of a decoder, all tokens of a prompt."""

    def function(x: Tensor, cosine: Tensor, sine: Tensor, *weights: Tensor) -> Tensor:
        first, second, query, key, value, out, *gates = weights
        cosine, sine = cosine[: x.shape[1]], sine[: x.shape[1]]
        rows = _scaled(x, first)
        queries = _turned(_heads(rows @ query, 128), cosine, sine)
        keys = _turned(_heads(rows @ key, 128), cosine, sine)
        found = functional.scaled_dot_product_attention(
            queries, keys, _heads(rows @ value, 128), is_causal=True, enable_gqa=True
        )
        x = x + found.transpose(1, 2).flatten(2) @ out
        return x + _gated(_scaled(x, second), *gates)

    length = draw.size(2048)
    norms = (torch.ones(2048, device=draw.device) for _ in range(2))
    weights = _block_weights(draw, 2048, 1024, draw.size(5632))
    inputs = (draw.normal(1, length, 2048), *_angles(draw, length, 128), *norms, *weights)
    return Layer(function, inputs, {0: 1})


def step(draw: Draw) -> Layer:
    """A block of a decoder, one token, with a cache of fixed length."""

    def function(
        x: Tensor, keys: Tensor, values: Tensor, at: Tensor, *others: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        cosine, sine, first, second, query, key, value, out, *gates = others
        cosine, sine = cosine[at], sine[at]
        rows = _scaled(x, first)
        queries = _turned(_heads(rows @ query, 128), cosine, sine)
        keys = keys.index_copy(2, at, _turned(_heads(rows @ key, 128), cosine, sine))
        values = values.index_copy(2, at, _heads(rows @ value, 128))
        known = torch.arange(keys.shape[2], device=at.device) <= at[:, None]
        found = functional.scaled_dot_product_attention(
            queries, keys, values, known, enable_gqa=True
        )
        x = x + found.transpose(1, 2).flatten(2) @ out
        return x + _gated(_scaled(x, second), *gates), keys, values

    length = draw.size(2048)
    caches = (draw.normal(8, 8, length, 128) for _ in range(2))
    at = torch.tensor([length // 2], device=draw.device)
    norms = (torch.ones(2048, device=draw.device) for _ in range(2))
    weights = _block_weights(draw, 2048, 1024, draw.size(5632))
    x = draw.normal(8, 1, 2048)
    return Layer(function, (x, *caches, at, *_angles(draw, length, 128), *norms, *weights))


def patches(draw: Draw) -> Layer:
    """A block of a network for images whose tokens are patches."""

    def function(x: Tensor, *weights: Tensor) -> Tensor:
        project, out, up, down, shift, more = weights
        rows = functional.layer_norm(x, (768,))
        query, key, value = (_heads(each, 64) for each in (rows @ project).chunk(3, -1))
        found = functional.scaled_dot_product_attention(query, key, value)
        x = x + found.transpose(1, 2).flatten(2) @ out
        rows = functional.gelu(functional.layer_norm(x, (768,)) @ up + shift)
        return x + rows @ down + more

    shapes = [(768, 2304), (768, 768), (768, 3072), (3072, 768)]
    weights = (draw.weight(*shape) for shape in shapes)
    shifts = (draw.normal(wide) for wide in (3072, 768))
    return Layer(function, (draw.normal(draw.size(64, 2), 197, 768), *weights, *shifts), {0: 0})


def few_tokens(draw: Draw) -> Layer:
    """A mixture for a few tokens: the weights of the experts that they chose are read."""

    def function(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
        weights, chosen = routed(x, gate)
        inner = functional.silu(torch.einsum("ti,taoi->tao", x, up[chosen]))
        rows = torch.einsum("tao,taio->tai", inner, down[chosen])
        return (rows * weights[..., None].to(x.dtype)).sum(1)

    inner, wide = draw.size(3584), draw.size(1024)
    up, down = draw.normal(8, inner, wide) / 32, draw.normal(8, wide, inner) / 60
    return Layer(function, (draw.normal(4, wide), draw.weight(wide, 8), up, down), {0: 0})


def adapters(draw: Draw) -> Layer:
    """A product, and one of low rank whose weights each sequence chooses."""

    def function(x: Tensor, weight: Tensor, down: Tensor, up: Tensor, chosen: Tensor) -> Tensor:
        return x @ weight + torch.bmm(torch.bmm(x, down[chosen]), up[chosen])

    wide = draw.size(2048)
    tables = draw.normal(64, wide, 16) / 45, draw.normal(64, 16, wide) / 4
    x = draw.normal(32, draw.size(256), wide)
    return Layer(function, (x, draw.weight(wide, wide), *tables, draw.below(64, 32)), {0: 1})


def words(draw: Draw) -> Layer:
    """The last layer of a language model, and its loss."""

    def function(x: Tensor, table: Tensor, label: Tensor) -> Tensor:
        return functional.cross_entropy((x @ table.T).float(), label)

    count, tokens = draw.size(32_000), draw.size(4096)
    inputs = (draw.normal(tokens, 1024), draw.normal(count, 1024) / 32, draw.below(count, tokens))
    return Layer(function, inputs, {0: 0, 2: 0})


def averaged(draw: Draw) -> Layer:
    """SAGEConv with a residual and a normalisation."""

    def function(x: Tensor, ends: Tensor, near: Tensor, far: Tensor) -> Tensor:
        count = x.shape[0]
        mean = summed(x[ends[0]], ends[1], count) / counted(ends[1], count).to(x.dtype)
        return x + functional.relu(functional.layer_norm(x @ near + mean @ far, (128,)))

    nodes, edges = draw.size(100_000, 50), draw.size(1_000_000, 200)
    weights = (draw.weight(128, 128) for _ in range(2))
    return Layer(
        function, (draw.normal(nodes, 128), draw.graph(nodes, edges), *weights), {0: 0, 1: 1}
    )


_MAKES: Mapping[str, Make] = {
    "SAGEConv, normalised": averaged,
    "ResGatedGraphConv": gated,
    "Swin, shifted windows": windows,
    "ViT, block": patches,
    "Llama, block of a prompt": prompt,
    "Llama, block of one step": step,
    "mixture, every expert": every_expert,
    "mixture, dispatched": dispatched,
    "mixture, few tokens": few_tokens,
    "adapters of low rank": adapters,
    "last layer and loss": words,
}

HALVES: Mapping[str, Make] = {f"{name}, bfloat16": in_halves(make) for name, make in _MAKES.items()}
