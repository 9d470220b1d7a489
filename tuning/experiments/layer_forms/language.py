"""Layers of networks for text."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from .layer import Draw, Layer, Make

_HALF = torch.float16


def _attended(scores: Tensor, value: Tensor, known: Tensor) -> Tensor:
    scores = (scores * 128**-0.5).masked_fill(~known, float("-inf"))
    return torch.softmax(scores.float(), -1).to(value.dtype) @ value


def static_cache(draw: Draw) -> Layer:
    def function(
        query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor, at: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        keys, values = keys.index_copy(2, at, key), values.index_copy(2, at, value)
        known = torch.arange(keys.shape[2], device=at.device) <= at
        return _attended(query @ keys.transpose(2, 3), values, known), keys, values

    length = draw.size(4096, 16)
    one = (draw.normal(8, 32, 1, 128, dtype=_HALF) for _ in range(3))
    caches = (draw.normal(8, 32, length, 128, dtype=_HALF) for _ in range(2))
    return Layer(function, (*one, *caches, torch.tensor([length // 2], device=draw.device)))


def paged_cache(draw: Draw) -> Layer:
    def function(
        query: Tensor, keys: Tensor, values: Tensor, table: Tensor, lengths: Tensor
    ) -> Tensor:
        batch, pages = table.shape
        shape = (batch, pages * 16, 8, 128)
        key, value = (each[table].view(shape).transpose(1, 2) for each in (keys, values))
        known = torch.arange(pages * 16, device=table.device)[None] < lengths[:, None]
        return _attended(query @ key.transpose(2, 3), value, known[:, None, None])

    pages, each = draw.size(4096), draw.size(128, 4)
    caches = (draw.normal(pages, 16, 8, 128, dtype=_HALF) for _ in range(2))
    table, lengths = draw.below(pages, 16, each), draw.below(each * 16, 16) + 1
    return Layer(function, (draw.normal(16, 8, 4, 128, dtype=_HALF), *caches, table, lengths))


def beams(draw: Draw) -> Layer:
    def function(keys: Tensor, values: Tensor, beam: Tensor) -> tuple[Tensor, Tensor]:
        return keys.index_select(0, beam), values.index_select(0, beam)

    caches = (draw.normal(32, 16, draw.size(1024), 64, dtype=_HALF) for _ in range(2))
    return Layer(function, (*caches, draw.below(32, 32)), {2: 0})


def _experts(draw: Draw) -> tuple[Tensor, ...]:
    up, down = draw.normal(8, 512, 1024) / 23, draw.normal(8, 1024, 512) / 32
    return draw.normal(draw.size(2048), 512), draw.weight(512, 8), up, down


def routed(x: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    """Two experts for each token and their weights, in single precision, as libraries do it."""
    return torch.softmax(x.float() @ gate.float(), -1).topk(2, -1)


def every_expert(draw: Draw) -> Layer:
    def function(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
        weights, chosen = routed(x, gate)
        total = torch.zeros_like(x)
        for expert in range(8):
            share = (weights * (chosen == expert)).sum(-1, keepdim=True).to(x.dtype)
            total = total + share * (functional.silu(x @ up[expert]) @ down[expert])
        return total

    return Layer(function, _experts(draw), {0: 0})


def dispatched(draw: Draw) -> Layer:
    capacity = draw.size(1024, 4)

    def function(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
        weights, chosen = routed(x, gate)
        expert = chosen.flatten()
        mine = functional.one_hot(expert, 8)
        place = ((mine.cumsum(0) - 1) * mine).sum(-1)
        fits = place < capacity
        slot = torch.where(fits, expert * capacity + place, 8 * capacity)
        token = torch.arange(x.shape[0], device=x.device).repeat_interleave(2)
        sent = x.new_zeros(8 * capacity + 1, 512)
        sent = sent.index_add(0, slot, x[token] * fits[:, None])
        rows = torch.bmm(functional.silu(torch.bmm(sent[:-1].view(8, capacity, 512), up)), down)
        rows = torch.cat([rows.view(8 * capacity, 512), rows.new_zeros(1, 512)])
        shares = weights.flatten()[:, None].to(x.dtype)
        return torch.zeros_like(x).index_add(0, token, rows[slot] * shares)

    return Layer(function, _experts(draw), {0: 0})


def unpadded(draw: Draw) -> Layer:
    length = draw.size(1024)

    def function(x: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
        wide = torch.zeros(32 * length, 768, dtype=x.dtype, device=x.device)
        wide = wide.index_copy(0, place, x).view(32, length, 768)
        return wide.flatten(0, 1)[place] * 2, wide

    tokens = draw.size(16_000, 32)
    place = torch.randperm(32 * length, generator=draw.generator, device=draw.device)
    return Layer(function, (draw.normal(tokens, 768, dtype=_HALF), place[:tokens].sort()[0]))


def relative(draw: Draw) -> Layer:
    def function(scores: Tensor, table: Tensor) -> Tensor:
        token = torch.arange(scores.shape[2], device=scores.device)
        apart = token[None] - token[:, None]
        far = torch.log(apart.abs().float().clamp(min=1) / 8) / 2.77 * 8
        bucket = torch.where(apart.abs() < 8, apart.abs(), (8 + far.long()).clamp(max=15))
        bias = table[bucket + (apart > 0).long() * 16].permute(2, 0, 1)
        return torch.softmax(scores + bias[None], -1)

    length = draw.size(1024)
    return Layer(function, (draw.normal(4, 16, length, length), draw.normal(32, 16)))


def embedded(draw: Draw) -> Layer:
    def function(token: Tensor, kind: Tensor, *tables: Tensor) -> Tensor:
        words, places, kinds = tables
        at = torch.arange(token.shape[1], device=token.device)
        return functional.layer_norm(words[token] + places[at] + kinds[kind], (768,))

    length, words = draw.size(512), draw.size(30_000)
    tables = (draw.normal(rows, 768) for rows in (words, length, 2))
    return Layer(
        function, (draw.below(words, 32, length), draw.below(2, 32, length), *tables), {0: 0, 1: 0}
    )


def last_token(draw: Draw) -> Layer:
    def function(x: Tensor, token: Tensor) -> Tensor:
        return x[torch.arange(x.shape[0], device=x.device), token.argmax(-1)]

    length = draw.size(512)
    return Layer(
        function, (draw.normal(64, length, 768), draw.below(40_000, 64, length)), {0: 0, 1: 0}
    )


def mean_token(draw: Draw) -> Layer:
    def function(x: Tensor, known: Tensor) -> Tensor:
        mask = known[..., None].to(x.dtype)
        return functional.normalize((x * mask).sum(1) / mask.sum(1).clamp(min=1e-9), dim=-1)

    length = draw.size(512)
    return Layer(function, (draw.normal(64, length, 768), draw.below(2, 64, length)), {0: 0, 1: 0})


def smoothed(draw: Draw) -> Layer:
    def function(logits: Tensor, label: Tensor) -> Tensor:
        return functional.cross_entropy(logits, label, ignore_index=-100, label_smoothing=0.1)

    words, tokens = draw.size(32_000), draw.size(8192)
    label = draw.below(words, tokens)
    label[::5] = -100
    return Layer(function, (draw.normal(tokens, words), label), {0: 0, 1: 0})


LANGUAGE: Mapping[str, Make] = {
    "static cache, one step, float16": static_cache,
    "pages of a cache, float16": paged_cache,
    "caches of beams, float16": beams,
    "mixture, every expert": every_expert,
    "mixture, dispatched": dispatched,
    "padded and unpadded, float16": unpadded,
    "T5, relative places": relative,
    "BERT, embeddings": embedded,
    "CLIP, last token": last_token,
    "mean token, normalised": mean_token,
    "cross entropy, smoothed": smoothed,
}
