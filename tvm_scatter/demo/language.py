"""Language models: caches, mixtures of experts, embeddings."""

from __future__ import annotations

from typing import Any

import torch


class CacheUpdate(torch.nn.Module):
    """New keys and values written into the cache, and the attention that reads it."""

    def forward(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        new_keys: torch.Tensor,
        new_values: torch.Tensor,
        positions: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        keys = keys.index_copy(2, positions, new_keys)
        values = values.index_copy(2, positions, new_values)
        scores = torch.matmul(query, keys.transpose(2, 3)) * query.shape[-1] ** -0.5
        return torch.matmul(torch.softmax(scores, dim=-1), values), keys, values


class MixtureOfExperts(torch.nn.Module):
    """Each token goes to its two best experts, whose weighted answers are added up again.

    Experts have room for a fixed number of tokens, so that every shape is static. Tokens that find
    no room go to a row that is discarded.
    """

    def __init__(self, tokens: int, width: int, experts: int, room: int) -> None:
        super().__init__()
        self.router = torch.nn.Linear(width, experts)
        self.weights = torch.nn.Parameter(torch.randn(experts, width, width) * width**-0.5)
        self.room = room
        self.register_buffer("token", torch.arange(tokens).repeat_interleave(2))
        self.register_buffer("expert", torch.arange(experts))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        experts, width, _ = self.weights.shape
        chances, chosen = torch.topk(torch.softmax(self.router(x), dim=-1), 2, dim=-1)
        chosen = chosen.flatten()
        goes_to = (chosen.unsqueeze(1) == self.expert).to(torch.int64)
        place = (torch.cumsum(goes_to, dim=0) * goes_to).sum(dim=1) - 1
        slot = torch.where(place < self.room, chosen * self.room + place, experts * self.room)
        rows = x.new_zeros(experts * self.room + 1, width)
        rows[slot] = x[self.token]
        answers = torch.bmm(rows[:-1].view(experts, self.room, width), self.weights)
        answers = torch.nn.functional.pad(answers.flatten(0, 1), (0, 0, 0, 1))
        weighted = answers[slot] * chances.reshape(-1, 1)
        return torch.zeros_like(x).index_add(0, self.token, weighted)


class EmbeddingGradient(torch.nn.Module):
    """The gradient of an embedding table: each token's gradient added to its row."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary

    def forward(self, gradient: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.embedding_dense_backward(gradient, tokens, self.vocabulary, -1, False)


def cache_update(size: str) -> tuple[Any, tuple[Any, ...]]:
    """One new token for each of four sequences in a cache of 2048."""
    batch, heads, length, width, new = {
        "full": (4, 16, 2048, 128, 1),
        "small": (2, 3, 16, 4, 2),
    }[size]
    cache = (batch, heads, length, width)
    fresh = (batch, heads, new, width)
    positions = torch.randperm(length)[:new]
    tensors = [torch.randn(fresh), *(torch.randn(cache) for _ in range(2))]
    return CacheUpdate().eval(), (*tensors, torch.randn(fresh), torch.randn(fresh), positions)


def mixture_of_experts(size: str) -> tuple[Any, tuple[Any, ...]]:
    """4096 tokens, 8 experts, two for each token, a quarter more room than they need."""
    tokens, width, experts = {"full": (4096, 256, 8), "small": (24, 8, 4)}[size]
    room = 5 * (2 * tokens // experts) // 4
    return MixtureOfExperts(tokens, width, experts, room).eval(), (torch.randn(tokens, width),)


def embedding_gradient(size: str) -> tuple[Any, tuple[Any, ...]]:
    """8 x 2048 tokens, 32 000 rows of 256."""
    batch, length, vocabulary, width = {
        "full": (8, 2048, 32_000, 256),
        "small": (2, 12, 20, 8),
    }[size]
    tokens = torch.randint(0, vocabulary, (batch, length))
    return EmbeddingGradient(vocabulary), (torch.randn(batch, length, width), tokens)
