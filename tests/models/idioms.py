"""Idioms that models of many fields hold."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from .zoo import Program, model

Tensor = torch.Tensor


@model("Histogram by scatter_add")
def histogram() -> Program:
    def count(values: torch.Tensor) -> torch.Tensor:
        return torch.zeros(10, dtype=torch.int64).scatter_add(0, values, torch.ones_like(values))

    return Program(count, (torch.randint(0, 10, (50,)),))


@model("Rows by a mask, concatenated")
def rows_by_masks() -> Program:
    def kept(x: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[scores > 0.5], x[scores <= 0.5] * 2])

    return Program(kept, (torch.randn(30, 4), torch.rand(30)))


@model("Detections above a threshold")
def detections() -> Program:
    def found(scores: torch.Tensor, boxes: torch.Tensor) -> tuple[torch.Tensor, ...]:
        box, label = torch.where(scores > 0.6)
        return boxes[box], label, scores.masked_select(scores > 0.6)

    return Program(found, (torch.rand(20, 5), torch.rand(20, 4)))


@model("Softmax over segments")
def segment_softmax() -> Program:
    def softmax(scores: Tensor, segment: Tensor) -> Tensor:
        index = segment[:, None].expand_as(scores)
        top = torch.full((6, 2), -math.inf).scatter_reduce(0, index, scores, "amax")
        weights = (scores - top[segment]).exp()
        return weights / torch.zeros(6, 2).index_add(0, segment, weights)[segment]

    return Program(softmax, (torch.randn(30, 2), torch.randint(0, 6, (30,))))


@model("Mask of the greatest")
def top_mask() -> Program:
    def masked(x: Tensor) -> Tensor:
        mask = torch.zeros_like(x, dtype=torch.bool).scatter(1, x.topk(3).indices, True)
        return x.masked_fill(~mask, -math.inf).softmax(1)

    return Program(masked, (torch.randn(4, 10),))


@model("Label smoothing")
def label_smoothing() -> Program:
    def loss(scores: Tensor, label: Tensor) -> Tensor:
        target = torch.full_like(scores, 0.1 / (scores.shape[1] - 1))
        target.scatter_(1, label[:, None], 0.9)
        return -(target * scores.log_softmax(1)).sum(1).mean()

    return Program(loss, (torch.randn(6, 5), torch.randint(0, 5, (6,))))


@model("Deduplication: the last of each key")
def deduplication() -> Program:
    def newest(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        position = torch.arange(keys.shape[0])
        last = torch.full((8,), -1).scatter_reduce(0, keys, position, "amax")
        return values[last.clamp(min=0)], last[keys] == position

    return Program(newest, (torch.randint(0, 8, (20,)), torch.randn(20, 3)))


@model("Histogram by bincount")
def bincount() -> Program:
    def frequencies(x: Tensor) -> Tensor:
        return x.bincount(minlength=10)[:10] / x.shape[0]

    return Program(frequencies, (torch.randint(0, 10, (50,)),))


@model("Compaction by a running sum")
def compaction() -> Program:
    def compact(x: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        place = torch.where(kept, kept.cumsum(0) - 1, x.shape[0])
        rows = torch.zeros(x.shape[0] + 1, x.shape[1]).index_copy(0, place, x)[:-1]
        return torch.where((torch.arange(x.shape[0]) < kept.sum())[:, None], rows, 0.0), kept.sum()

    return Program(compact, (torch.randn(20, 3), torch.rand(20) > 0.5))


@model("Memory of a temporal graph network")
def temporal_memory() -> Program:
    class Memory(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("memory", torch.zeros(8, 4))
            self.register_buffer("seen", torch.zeros(8))
            self.update = torch.nn.GRUCell(5, 4)

        def forward(self, nodes: Tensor, messages: Tensor, times: Tensor) -> Tensor:
            gaps = times - self.seen[nodes]
            state = self.update(torch.cat([messages, gaps[:, None]], 1), self.memory[nodes])
            self.memory[nodes] = state
            self.seen[nodes] = times
            return self.memory.sum(1)

    return Program(Memory(), (torch.randperm(8)[:3], torch.randn(3, 4), torch.rand(3)))


@model("Graph coarsening")
def coarsening() -> Program:
    def coarsen(x: Tensor, edges: Tensor, cluster: Tensor) -> tuple[Tensor, Tensor]:
        counts = torch.zeros(4).index_add(0, cluster, torch.ones_like(x[:, 0]))
        means = torch.zeros(4, 3).index_add(0, cluster, x) / counts.clamp(min=1)[:, None]
        source, target = cluster[edges]
        weights = torch.zeros(16).index_add(0, source * 4 + target, (source != target).float())
        return means, weights.view(4, 4)

    inputs = torch.randn(12, 3), torch.randint(0, 12, (2, 30)), torch.randint(0, 4, (12,))
    return Program(coarsen, inputs)


@model("Hinge loss against the best wrong class")
def hinge() -> Program:
    def loss(scores: Tensor, label: Tensor) -> Tensor:
        right = scores.gather(1, label[:, None])
        wrong = scores.scatter(1, label[:, None], -math.inf).amax(1, keepdim=True)
        return (1 + wrong - right).clamp(min=0).mean()

    return Program(loss, (torch.randn(6, 5), torch.randint(0, 5, (6,))))


@model("Beam search: caches in the order of the beams")
def beam_search() -> Program:
    class Beams(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.randn(4, 6, 3))

        def forward(self, scores: Tensor, new: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
            best, at = scores.flatten().topk(4)
            beam = at // scores.shape[1]
            self.cache.copy_(self.cache.index_select(0, beam))
            self.cache.index_copy_(1, position, new[:, None])
            return best, at % scores.shape[1]

    return Program(Beams(), (torch.randn(4, 9), torch.randn(4, 3), torch.tensor([2])))


@model("Paged cache of keys and values")
def paged_cache() -> Program:
    class Cache(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("pages", torch.zeros(6, 4, 2, 3))

        def forward(self, table: Tensor, position: Tensor, keys: Tensor) -> Tensor:
            page = table.gather(1, (position // 4)[:, None])[:, 0]
            self.pages[page, position % 4] = keys
            return self.pages[table].flatten(1, 2).sum((2, 3))

    table = torch.randperm(6).view(3, 2)
    return Program(Cache(), (table, torch.tensor([0, 5, 3]), torch.randn(3, 2, 3)))


@model("Cache of a sliding window")
def sliding_window() -> Program:
    class Window(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("keys", torch.randn(2, 5, 3))

        def forward(self, position: Tensor, key: Tensor) -> Tensor:
            rolled = torch.where(position >= 5, self.keys.roll(-1, 1), self.keys)
            self.keys.copy_(rolled.index_copy(1, position.clamp(max=4), key))
            return self.keys.clone()

    return Program(
        Window(),
        (torch.tensor([7]), torch.randn(2, 1, 3)),
        again=(torch.tensor([3]), torch.randn(2, 1, 3)),
    )


@model("Speculative decoding: what is accepted")
def speculative() -> Program:
    def accept(draft: Tensor, chosen: Tensor, extra: Tensor) -> tuple[Tensor, Tensor]:
        count = (draft == chosen).long().cumprod(1).sum(1)
        kept = torch.where(torch.arange(4) < count[:, None], draft, -1)
        last = torch.cat([chosen, extra[:, None]], 1).gather(1, count[:, None])
        padded = torch.cat([kept, torch.full((3, 1), -1)], 1)
        return padded.scatter(1, count[:, None], last), count

    return Program(
        accept,
        (torch.randint(0, 2, (3, 4)), torch.randint(0, 2, (3, 4)), torch.randint(0, 2, (3,))),
    )


@model("Switch: experts with a capacity")
def switch() -> Program:
    def layer(x: Tensor, gate: Tensor, experts: Tensor) -> Tensor:
        weight, expert = (x @ gate).softmax(1).max(1)
        chosen = functional.one_hot(expert, 3)
        place = ((chosen.cumsum(0) - 1) * chosen).sum(1)
        kept = place < 4
        slot = torch.where(kept, expert * 4 + place, 12)
        sent = torch.zeros(13, x.shape[1]).index_copy(0, slot, x)[:12]
        done = (sent.view(3, 4, -1) @ experts).flatten(0, 1)
        back = torch.cat([done, torch.zeros(1, x.shape[1])])[slot]
        return back * (weight * kept)[:, None]

    return Program(layer, (torch.randn(10, 4), torch.randn(4, 3), torch.randn(3, 4, 4)))


@model("Inverse of a permutation")
def inverse() -> Program:
    def undo(order: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.empty_like(order).scatter_(0, order, torch.arange(order.shape[0]))
        return places, x[order][places] - x

    return Program(undo, (torch.randperm(12), torch.randn(12, 2)))


@model("Mask of blocks for sparse attention")
def block_mask() -> Program:
    def attend(q: Tensor, k: Tensor, v: Tensor, blocks: Tensor) -> Tensor:
        mask = torch.zeros(3, 3, dtype=torch.bool)
        mask[torch.arange(3)[:, None], blocks] = True
        mask = mask.repeat_interleave(4, 0).repeat_interleave(4, 1)
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    q, k, v = torch.randn(3, 2, 12, 4)
    return Program(attend, (q, k, v, torch.tensor([[0, 1], [1, 0], [2, 1]])))


@model("Bags of words with offsets")
def bags() -> Program:
    bag = torch.nn.EmbeddingBag(20, 4, mode="mean")
    return Program(bag, (torch.randint(0, 20, (15,)), torch.tensor([0, 4, 4, 10])))


@model("Counts of pairs of words")
def pairs() -> Program:
    def count(words: Tensor) -> Tensor:
        return torch.zeros(49).scatter_add(0, words[:-1] * 7 + words[1:], torch.ones(29)).view(7, 7)

    return Program(count, (torch.randint(0, 7, (30,)),))


@model("Connected components")
def components() -> Program:
    def label(edges: Tensor) -> Tensor:
        found = torch.arange(12)
        both = torch.cat([edges, edges.flip(0)], 1)
        for _ in range(4):
            found = found.scatter_reduce(0, both[1], found[both[0]], "amin")
            found = found[found]
        return found

    return Program(label, (torch.randint(0, 12, (2, 9)),))


@model("PageRank")
def pagerank() -> Program:
    def rank(edges: Tensor) -> Tensor:
        source, target = edges
        out = torch.zeros(10).index_add(0, source, torch.ones(30)).clamp(min=1)
        value = torch.full((10,), 0.1)
        for _ in range(4):
            value = 0.015 + 0.85 * torch.zeros(10).index_add(0, target, (value / out)[source])
        return value

    return Program(rank, (torch.randint(0, 10, (2, 30)),))


@model("Union of masks")
def union() -> Program:
    def together(masks: Tensor, owner: Tensor) -> Tensor:
        counts = torch.zeros(3, 6, 6).index_add(0, owner, masks.float())
        return counts > 0

    return Program(together, (torch.rand(7, 6, 6) > 0.7, torch.randint(0, 3, (7,))))


@model("CTC: the forward variables")
def ctc() -> Program:
    def forward(scores: Tensor, label: Tensor) -> Tensor:
        extended = torch.zeros(2, 7, dtype=torch.int64)
        extended[:, 1::2] = label
        skips = torch.zeros(2, 7, dtype=torch.bool)
        skips[:, 3::2] = label[:, 1:] != label[:, :-1]
        seen = scores.gather(2, extended[:, None].expand(-1, 5, -1))
        alpha = torch.full((2, 7), -1e9)
        alpha[:, :2] = seen[:, 0, :2]
        for t in range(1, 5):
            one = functional.pad(alpha, (1, 0), value=-1e9)[:, :-1]
            two = functional.pad(alpha, (2, 0), value=-1e9)[:, :-2].where(skips, torch.tensor(-1e9))
            alpha = torch.stack([alpha, one, two]).logsumexp(0) + seen[:, t]
        return -alpha[:, -2:].logsumexp(1)

    return Program(forward, (torch.randn(2, 5, 6).log_softmax(2), torch.randint(1, 6, (2, 3))))


@model("CRF: the score of a path, and the best path")
def crf() -> Program:
    def decode(scores: Tensor, moves: Tensor, tags: Tensor) -> tuple[Tensor, Tensor]:
        score = scores.gather(2, tags[..., None]).sum((1, 2)) + moves[
            tags[:, :-1], tags[:, 1:]
        ].sum(1)
        best, back = scores[:, 0], []
        for t in range(1, 5):
            best, at = (best[:, :, None] + moves).max(1)
            best, back = best + scores[:, t], [*back, at]
        path = torch.zeros(2, 5, dtype=torch.int64)
        path[:, 4] = best.argmax(1)
        for t in range(3, -1, -1):
            path[:, t] = back[t].gather(1, path[:, t + 1, None])[:, 0]
        return score, path

    return Program(decode, (torch.randn(2, 5, 4), torch.randn(4, 4), torch.randint(0, 4, (2, 5))))


@model("Rotary positions and a cache")
def rotary() -> Program:
    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("keys", torch.zeros(1, 2, 8, 4))
            self.register_buffer("values", torch.zeros(1, 2, 8, 4))

        def forward(self, q: Tensor, k: Tensor, v: Tensor, position: Tensor) -> Tensor:
            angle = position[:, None] * torch.tensor([1.0, 0.01]).repeat(2)

            def rotated(x: Tensor) -> Tensor:
                left, right = x.chunk(2, -1)
                return x * angle.cos() + torch.cat([-right, left], -1) * angle.sin()

            self.keys.index_copy_(2, position, rotated(k))
            self.values.index_copy_(2, position, v)
            mask = torch.arange(8) <= position[:, None]
            attention = functional.scaled_dot_product_attention
            return attention(rotated(q), self.keys, self.values, attn_mask=mask)

    return Program(Attention(), (*torch.randn(3, 1, 2, 1, 4), torch.tensor([3])))


@model("Sum of pixels of each region")
def superpixels() -> Program:
    """Of any size."""

    def pool(image: Tensor, region: Tensor) -> Tensor:
        flat = region.flatten()
        counts = flat.bincount(minlength=5)[:5].clamp(min=1)
        return torch.zeros(5, 3).index_add(0, flat, image.flatten(1).T) / counts[:, None]

    height = torch.export.Dim("height", min=2, max=64)

    def inputs(rows: int) -> tuple[Tensor, Tensor]:
        return torch.rand(3, rows, 6), torch.randint(0, 5, (rows, 6))

    return Program(pool, inputs(7), ({1: height}, {0: height}), inputs(4))
