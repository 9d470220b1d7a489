"""Assignments, scatters and small models, as users of PyTorch write them, for its ONNX exporters.

The list follows PyTorch's documentation of indexing and of tensor methods, not this package.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import onnx
import torch
from torch.nn import functional as F

Tensor = torch.Tensor

#: Statements; the result is the tensor that is written to.
ASSIGNMENTS = """
x[0] = 5.0
x[0] = row
x[-1] = row
x[s] = row
x[0, 2] = 7.0
x[0, 2] = sc
x[:, 1] = 3.0
x[:, -1] = col
x[..., 2] = col
x[..., 1:4] = wide
x[:, 1:4] = wide
x[:, 1:4] = 0.0
x[:, 1:4] = row[:3]
x[1:3] = 0
x[1:3] = row
x[1:3, ::2] = 5.0
x[::2] = 1.0
x[::2, 1::2] = -1.0
x[:, ::2] = wide
x[-2:] = row
x[:-1] = x[1:].clone()
x[:, -2:] = 4.0
x[:] = row
x[:] = 0.0
x[...] = full
x[:, None, 2] = col[:, None]
x3[:, 0] = full
x3[:, :, 0] = 2.0
x3[..., 0] = 2.0
x3[:, 1:3, 2:5] = 1.0
x3[:, 1:3, 2] = col[:, None]
x3[0, ..., 1] = 3.0
x3[:, -1, ::2] = wide
x[1:3] += 1.0
x[:, 1] += col
x[:, 1] *= 2.0
x[0] -= row
x[:, 2:5] /= 2.0
x3[:, 1] += full
x[:, 1:4].fill_(9.0)
x[:, 1].zero_()
x[:, 1:4].copy_(wide)
x.narrow(1, 1, 3).copy_(wide)
x.select(1, 2).add_(col)
x[1:3].mul_(2.0)
x.t()[1] = col
x.T[1:4] = wide.T
x.view(-1)[3] = 1.0
x.view(-1)[::5] = 1.0
x.diagonal().fill_(0.0)
x.fill_diagonal_(3.0)
x3[:, 0, 0], x3[:, 1, 1] = 1.0, 2.0
x[xi > 3] = 0.0
xi[:, 1] = 7
xi[xi < 0] = 0
xh[:, 1:4] = 1.0
xd[0] = 2.0
xb[:, 1] = True
xb[0] = e[1]
xf[:, 2] = -1
x[i] = v
x[i] = 3.0
x[i] = row
x[i] = one
x[i] = sc
x[i] = v[0:1]
x[neg] = v
x[i32] = v
x[i2] = 1.0
x[i2] = row
x[i, j] = two
x[i, j] = 1.5
x[i, 2] = two
x[i, -1] = two
x[0, j] = two
x[:, c6] = wide
x[:, c6] = 2.0
x[:, c6] = row[:3]
x[..., c6] = wide
x[[0, 2]] = v[:2]
x[[0, 2], [1, 3]] = two[:2]
x[:, [0, 2, 3]] = wide
x[[0, -1]] = 1.0
x[i, 1:4] = v[:, 1:4]
x[i, ::2] = 0.0
x[1:, c6] = 3.0
x[i[:, None], c6] = v[:, :3]
x[i[:, None], c6[None, :]] = 1.0
x3[i] = v3
x3[i, 1] = v
x3[i, :, 2] = v3[..., 0]
x3[:, c6 % 4] = w3
x3[:, i % 4, j % 6] = 2.0
x3[i, :, j] = v3[:, :, 0]
x3[i, j % 4] = v
x3[i, j % 4, 1:3] = v[:, 1:3]
x3[..., c6] = 1.0
x3[torch.arange(x3.shape[0]), 1, lab] = col
x3[:, 1:3, c6] = 5.0
x[torch.arange(x.shape[0]), lab] = 1.0
x[torch.arange(x.shape[0]), lab] = col
x[torch.arange(x.shape[0]), lab] -= 1.0
x[i] += v
x[i] += 1.0
x[i] *= 2.0
x[i, j] += two
x[:, c6] += 1.0
x[:, c6] -= wide
xi[i] = 7
xi[i] = v.long()
xh[i] = v.half()
xh[i] += v.half()
xd[i] = v.double()
xb[i] = True
xb[i, j] = False
xf[i] += 1
x[m] = 3.0
x[m] = v
x[m] = row
x[m] = one
x[m] = sc
x[~m] = 0.0
x[m] += 1.0
x[m] *= 2.0
x[m] = -x[m]
x[m] = x[m] + row
x[m, 1] = 5.0
x[m, 1] = two
x[m, 1:3] = 0.0
x[m, 1:3] = v[:, 1:3]
x[m, c6[:1]] = two
x[e] = -1.0
x[e] = sc
x[e] = one
x[e] += 1.0
x[e] = x[e] * 2.0
x[e] = full[e]
x[x > 0] = 0.0
x[x < 0] *= 0.1
x[x.isnan()] = 0.0
x[(x > 0) & e] = 1.0
x[:, m6] = 2.0
x[:, m6] = wide
x[..., m6] = wide
x[0, m6] = 1.0
x[1:, m6] = 0.0
x3[m] = 0.0
x3[m] = v3
x3[e3] = 0.0
x3[e3] = row
x3[e3] += 1.0
x3[:, 1][m] = 0.0
x3[m, :, 2] = 1.0
x3[m, 1] = v
x3[e3, 2] = 1.0
x[m][:, 0] = 1.0
xi[e] = 0
xi[m] = 1
xb[e] = False
xb[m] = True
xh[e] = 0.0
xh[m] = row.half()
xb |= e
xb[:, 1] |= m
x.masked_fill_(m[:, None], float("-inf"))
x[:, 1:4][e[:, 1:4]] = 0.0
"""

#: Expressions.
CALLS = """
x.index_put((i,), v)
x.index_put((i, j), two)
x.index_put((i,), v, accumulate=True)
x.index_put((d,), vd, accumulate=True)
x.index_put((i, j), two, accumulate=True)
x.index_put((i[:, None], c6), v[:, :3], accumulate=True)
x.index_put_((d,), torch.tensor(1.0), accumulate=True)
x.index_put((e,), sc)
x.index_put((m,), v, accumulate=True)
x.index_put((m,), row)
torch.ops.aten.index_put(x3, (None, c6 % 4), w3)
torch.ops.aten.index_put(x3, (None, None, c6), x3[..., :3] * 2, True)
torch.ops.aten.index_put(x3, (i, None, j), v3[..., 0])
xi.index_put((d,), vd.long(), accumulate=True)
x.index_add(0, i, v)
x.index_add(0, d, vd)
x.index_add(0, d, vd, alpha=2)
x.index_add_(0, d, vd)
x.index_add(1, c6 % 6, wide)
x.index_add(-1, c6 % 6, wide)
x3.index_add(0, i, v3)
x3.index_add(1, c6 % 4, w3)
col.index_add(0, i, two)
torch.zeros(7, 6).index_add(0, d, vd)
torch.zeros_like(x).index_add_(0, d, vd)
xi.index_add(0, d, vd.long())
x.index_add(0, i32, v)
x.index_copy(0, i, v)
x.index_copy(1, c6 % 6, wide)
x.index_copy_(0, i, v)
x3.index_copy(1, c6 % 4, w3)
x3.index_copy(2, p, x3[:, :, :1] * 2)
x.index_fill(0, i, 3.0)
x.index_fill(1, c6 % 6, -1.0)
x.index_fill(0, i, sc)
x.index_fill_(0, i, 0)
x.index_reduce(0, d, vd, "prod")
x.index_reduce(0, d, vd, "amax", include_self=False)
x.index_reduce(0, d, vd, "amin")
x.index_reduce(0, d, vd, "mean")
x.scatter(0, atu, v)
x.scatter(0, atu, 2.0)
x.scatter(1, al, wide)
x.scatter(-1, al, wide)
x.scatter_(1, al, wide)
x.scatter(1, al, full)
x.scatter(1, al[:, :2], full)
x.scatter(0, atu, v, reduce="add")
x.scatter(0, at, v, reduce="multiply")
x.scatter(1, al2, 2.0, reduce="add")
x.scatter(1, lab[:, None], 1.0)
x.scatter_(1, lab.unsqueeze(1), 1)
xi.scatter(1, al, 4)
xb.scatter(1, al, True)
xh.scatter(1, al, wide.half())
torch.zeros_like(x).scatter_(1, lab[:, None], 1.0)
torch.zeros(x.shape[0], 6).scatter_(1, al, wide)
x3.scatter(2, (lab % 4)[:, None, None].expand(-1, 4, 1), 1.0)
x.scatter_add(0, at, v)
x.scatter_add(1, al2, src5)
x.scatter_add_(-1, al2, src5)
x.scatter_add(1, al2, full)
torch.zeros_like(x).scatter_add(0, d[:, None].expand(-1, 6), vd)
torch.zeros_like(x).scatter_add_(0, d[:, None].expand_as(vd), vd)
xi.scatter_add(1, al2, al2)
xh.scatter_add(1, al2, src5.half())
xd.scatter_add(1, al2, src5.double())
col.scatter_add(0, d, vd[:, 0])
x.scatter_reduce(0, at, v, "sum")
x.scatter_reduce(0, at, v, "prod")
x.scatter_reduce(0, at, v, "amax")
x.scatter_reduce(0, at, v, "amin")
x.scatter_reduce(0, at, v, "mean")
x.scatter_reduce(0, at, v, "sum", include_self=False)
x.scatter_reduce(0, at, v, "prod", include_self=False)
x.scatter_reduce(0, at, v, "amax", include_self=False)
x.scatter_reduce(0, at, v, "amin", include_self=False)
x.scatter_reduce(0, at, v, "mean", include_self=False)
x.scatter_reduce(1, al2, src5, "amax")
x.scatter_reduce_(1, al2, src5, "amax", include_self=False)
xi.scatter_reduce(1, al2, al2, "amax")
xi.scatter_reduce(1, al2, al2, "sum", include_self=False)
xi.scatter_reduce(1, al2, al2, "amin", include_self=False)
xh.scatter_reduce(1, al2, src5.half(), "amin", include_self=False)
xd.scatter_reduce(1, al2, src5.double(), "amax")
col.scatter_reduce(0, d, vd[:, 0], "amax", include_self=False)
x.masked_fill(e, 2.0)
x.masked_fill(m[:, None], float("-inf"))
x.masked_fill(e, sc)
x.masked_fill(m6, 0.0)
xi.masked_fill(e, 7)
x.masked_scatter(e, full)
x.masked_scatter(m[:, None], v)
x.masked_scatter(m6, full)
xi.masked_scatter(e, xf.long())
x.masked_select(e)
x[m]
x[e]
x[:, m6]
x.put(torch.tensor([0, 5, 7]), row[:3])
x.put_(torch.tensor([0, 5, -1]), row[:3], accumulate=True)
x.take(torch.tensor([0, 5, -1]))
x.select_scatter(col, 1, 2)
x.select_scatter(row, 0, -1)
x.slice_scatter(wide, 1, 1, 4)
x.slice_scatter(wide, 1, 0, 6, 2)
x3[:, :3, :3].diagonal_scatter(wide, 0, 1, 2)
torch.ones(4, 6).diagonal_scatter(row[:4])
torch.ones(4, 6).as_strided_scatter(row[:4], (4,), (7,), 1)
torch.where(e, x, full)
torch.where(e, x, 0.0)
torch.where(m[:, None], x, row)
torch.where(e)[0]
torch.where(m)
m.nonzero()
e.nonzero()
e.nonzero(as_tuple=True)[1]
torch.argwhere(e)
x.scatter(0, m.nonzero().expand(-1, 6), v)
x.index_copy(0, m.nonzero()[:, 0], v)
x.index_fill(0, torch.where(m)[0], 0.0)
x[torch.where(m)]
x.index_add(0, m.nonzero().squeeze(1), v)
F.one_hot(lab, 6)
F.one_hot(lab, num_classes=9).float()
F.one_hot(lab)
F.one_hot(i2, 12)
torch.eye(6)[lab]
x.gather(1, al)
x.gather(0, at)
torch.take_along_dim(x, al, 1)
x.scatter(1, al, x.gather(1, al) * 2)
x.scatter(1, x.argsort(1), full)
x.scatter_add(1, al, x.gather(1, al))
x.index_select(0, i)
torch.empty_like(x).copy_(full)
torch.bincount(lab, minlength=6)
torch.bincount(lab, weights=col, minlength=6)
torch.zeros(6, dtype=torch.int64).scatter_add_(0, lab, torch.ones_like(lab))
torch.zeros(6).index_add_(0, lab, col)
torch.zeros(6).index_put_((lab,), torch.ones(()), accumulate=True)
torch.histc(x, 5, -2.0, 2.0)
torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0]))
torch.unique(lab)
torch.unique(lab, return_inverse=True)[1]
torch.cumsum(m.long(), 0)
torch.repeat_interleave(x, 2, 0)
torch.tril(x)
torch.triu(x, 1)
x.tril_()
torch.roll(x, 1, 0)
torch.flip(x, (0,))
F.embedding_bag(lab % 4, full[:4], torch.tensor([0, 2]), mode="sum")
F.embedding_bag(i2, torch.arange(72.0).view(12, 6), mode="mean")
F.embedding_bag(i2, torch.arange(72.0).view(12, 6), mode="max")
F.embedding_bag(i2, torch.arange(72.0).view(12, 6), mode="sum")
F.max_unpool2d(*F.max_pool2d(img, 2, return_indices=True), 2)
F.max_unpool1d(*F.max_pool1d(x3, 2, return_indices=True), 2)
F.max_pool2d(img, 2, return_indices=True)[1]
F.fold(x3.reshape(-1, 8, 3), (2, 4), (2, 2))
F.fold(F.unfold(img, 3, padding=1), (8, 8), 3, padding=1)
F.fold(F.unfold(img, 2, stride=2), (8, 8), 2, stride=2)
F.unfold(img, 3)
F.pad(x, (1, 2), value=3.0)
torch.diag_embed(x)
F.pixel_shuffle(x3[..., None].expand(-1, -1, -1, 2), 2)
torch.segment_reduce(x, "sum", lengths=torch.tensor([1, 3]), unsafe=True)
torch.scatter(x, 1, al, wide)
torch.index_add(x, 0, d, vd)
torch.sort(x, 1)[0]
torch.kthvalue(x, 2, 1)[0]
torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), x)
x.cummax(1)[0]
"""

MODELS: dict[str, Callable[..., Any]] = {}


def model(function: Callable[..., Any]) -> Callable[..., Any]:
    MODELS[function.__name__] = function
    return function


@model
def topk_mask(x: Tensor) -> Tensor:
    return torch.zeros_like(x).scatter(1, x.topk(2, 1)[1], 1.0)


@model
def topk_mask_bool(x: Tensor) -> Tensor:
    m = torch.zeros_like(x, dtype=torch.bool).scatter_(1, x.topk(2, 1).indices, True)
    return x.masked_fill(~m, float("-inf"))


@model
def topk_logits(x: Tensor) -> Tensor:
    t = x.topk(3, -1)[0][..., -1, None]
    x = x.clone()
    x[x < t] = -float("inf")
    return x.softmax(-1)


@model
def top_p(x: Tensor) -> Tensor:
    s, ix = x.sort(-1, descending=True)
    drop = s.softmax(-1).cumsum(-1) > 0.8
    drop[..., 1:] = drop[..., :-1].clone()
    drop[..., 0] = False
    return x.masked_fill(drop.scatter(1, ix, drop), -1e9)


@model
def repetition_penalty(x: Tensor, al: Tensor) -> Tensor:
    s = x.gather(1, al)
    s = torch.where(s < 0, s * 1.2, s / 1.2)
    return x.scatter(1, al, s)


@model
def gcn(x: Tensor, edges: Tensor) -> Tensor:
    s, t = edges[0], edges[1]
    deg = torch.zeros(x.shape[0]).index_add(0, t, torch.ones(t.shape[0]))
    norm = deg.clamp(min=1).rsqrt()
    msg = x[s] * (norm[s] * norm[t])[:, None]
    return torch.zeros_like(x).index_add(0, t, msg)


@model
def gat_softmax(x: Tensor, edges: Tensor, wts: Tensor) -> Tensor:
    t = edges[1]
    n = x.shape[0]
    top = torch.full((n,), -torch.inf).scatter_reduce(0, t, wts, "amax")
    ex = (wts - top[t]).exp()
    den = torch.zeros(n).scatter_add(0, t, ex)
    return torch.zeros_like(x).index_add(0, t, x[edges[0]] * (ex / (den[t] + 1e-16))[:, None])


@model
def sage_mean(x: Tensor, edges: Tensor) -> Tensor:
    t = edges[1][:, None].expand(-1, x.shape[1])
    return torch.zeros_like(x).scatter_reduce(0, t, x[edges[0]], "mean", include_self=False)


@model
def edge_max(x: Tensor, edges: Tensor) -> Tensor:
    t = edges[1][:, None].expand(-1, x.shape[1])
    return torch.zeros_like(x).scatter_reduce(0, t, x[edges[0]], "amax", include_self=False)


@model
def pool_graphs(x: Tensor, lab: Tensor) -> Tensor:
    s = torch.zeros(6, x.shape[1]).index_add(0, lab, x)
    c = torch.zeros(6).scatter_add(0, lab, torch.ones(x.shape[0]))
    return s / c.clamp(min=1)[:, None]


@model
def moe_combine(x: Tensor, full: Tensor) -> Tensor:
    w, e = x.softmax(-1).topk(2, -1)
    out = torch.zeros_like(full)
    n = x.shape[0]
    tok = torch.arange(n)[:, None].expand(n, 2).reshape(-1)
    y = full[tok] * (e.reshape(-1)[:, None] + 1.0)
    return out.index_add(0, tok, y * w.reshape(-1)[:, None])


@model
def moe_loop(x: Tensor, full: Tensor) -> Tensor:
    w, e = x.softmax(-1).topk(2, -1)
    out = torch.zeros_like(full)
    for expert in range(3):
        t, slot = torch.where(e == expert)
        out.index_add_(0, t, full[t] * (expert + 1.0) * w[t, slot][:, None])
    return out


@model
def moe_dense_gate(x: Tensor, full: Tensor) -> Tensor:
    w, e = x.softmax(-1).topk(2, -1)
    gate = torch.zeros_like(x).scatter(1, e, w)
    return gate.T @ full


@model
def kv_index_copy(x3: Tensor, s: Tensor) -> Tensor:
    cache = torch.zeros(x3.shape[0], 8, 6)
    return cache.index_copy(1, s.reshape(1), x3[:, :1])


@model
def kv_assign(x3: Tensor, p: Tensor) -> Tensor:
    cache = torch.zeros(x3.shape[0], 8, 6)
    cache[:, p] = x3[:, :1]
    return cache


@model
def kv_range(x3: Tensor, p: Tensor) -> Tensor:
    cache = torch.zeros(x3.shape[0], 8, 6)
    cache[:, p + torch.arange(4)] = x3
    return cache.cumsum(1)


@model
def kv_scatter(x3: Tensor, lab: Tensor) -> Tensor:
    cache = torch.zeros(x3.shape[0], 8, 6)
    return cache.scatter(1, lab[:, None, None].expand(-1, 1, 6), x3[:, :1])


@model
def kv_batch(x3: Tensor, lab: Tensor) -> Tensor:
    cache = torch.zeros(x3.shape[0], 8, 6)
    cache[torch.arange(x3.shape[0]), lab] = x3[:, 0]
    return cache


@model
def voxels(x: Tensor, lab: Tensor) -> Tensor:
    flat = lab * 6 + lab.flip(0)
    grid = torch.zeros(36, 6).index_put((flat,), x, accumulate=True)
    return grid.view(6, 6, 6).permute(2, 0, 1)


@model
def pillars(x: Tensor, lab: Tensor) -> Tensor:
    canvas = torch.zeros(6, 36)
    canvas[:, lab * 6 + 1] = x.t()
    return canvas.view(1, 6, 6, 6)


@model
def histogram2d(lab: Tensor) -> Tensor:
    h = torch.zeros(6, 6)
    h.index_put_((lab, lab.flip(0)), torch.ones(lab.shape[0]), accumulate=True)
    return h


@model
def label_smoothing(x: Tensor, lab: Tensor) -> Tensor:
    t = torch.full_like(x, 0.1 / 5).scatter_(1, lab.unsqueeze(1), 0.9)
    return -(t * x.log_softmax(1)).sum(1)


@model
def causal_mask(x: Tensor) -> Tensor:
    n = x.shape[0]
    m = torch.full((n, n), float("-inf")).triu(1)
    return (x @ x.T + m).softmax(-1)


@model
def pack_tokens(x: Tensor, m: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    r = x[m]
    out[: r.shape[0]] = r
    return out


@model
def pack_by_cumsum(x: Tensor, m: Tensor) -> Tensor:
    to = torch.where(m, m.long().cumsum(0) - 1, x.shape[0])
    return torch.zeros(x.shape[0] + 1, 6).index_copy(0, to, x)[:-1]


@model
def vision_tokens(x: Tensor, m: Tensor, v: Tensor) -> Tensor:
    return x.masked_scatter(m[:, None].expand_as(x), v)


@model
def inverse_perm(x: Tensor) -> Tensor:
    o = x[:, 0].argsort()
    inv = torch.empty_like(o)
    inv[o] = torch.arange(o.shape[0])
    return x[o][inv]


@model
def loop_assign(x: Tensor) -> Tensor:
    out = torch.zeros(x.shape[0], 3)
    for c in range(3):
        out[:, c] = x[:, c] * (c + 1)
    return out


@model
def boxes(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, 0] = x[:, 0] - x[:, 2] / 2
    y[:, 1] = x[:, 1] - x[:, 3] / 2
    y[..., 2:4] = x[..., 0:2] + x[..., 2:4] / 2
    return y


@model
def clip_boxes(x: Tensor) -> Tensor:
    y = x.clone()
    y[..., [0, 2]] = y[..., [0, 2]].clamp(0, 1)
    y[..., [1, 3]] = y[..., [1, 3]].clamp(0, 2)
    return y


@model
def shift_tokens(xi: Tensor) -> Tensor:
    s = xi.new_zeros(xi.shape)
    s[:, 1:] = xi[:, :-1].clone()
    s[:, 0] = 2
    s.masked_fill_(s == -5, 0)
    return s


@model
def rotary(x3: Tensor) -> Tensor:
    out = torch.empty_like(x3)
    out[..., ::2] = -x3[..., 1::2]
    out[..., 1::2] = x3[..., ::2]
    return out


@model
def window_mask(img: Tensor) -> Tensor:
    m = torch.zeros(1, 8, 8, 1)
    c = 0
    for h in (slice(0, -4), slice(-4, -2), slice(-2, None)):
        for w in (slice(0, -4), slice(-4, -2), slice(-2, None)):
            m[:, h, w, :] = c
            c += 1
    return img + m.permute(0, 3, 1, 2)


@model
def temporal_shift(x3: Tensor) -> Tensor:
    out = torch.zeros_like(x3)
    out[:, :-1, :2] = x3[:, 1:, :2]
    out[:, 1:, 2:4] = x3[:, :-1, 2:4]
    out[:, :, 4:] = x3[:, :, 4:]
    return out


@model
def dropedge(x: Tensor, edges: Tensor, wts: Tensor) -> Tensor:
    k = wts > 0
    e = edges[:, k]
    return torch.zeros_like(x).index_add(0, e[1], x[e[0]])


@model
def self_loops(x: Tensor, edges: Tensor) -> Tensor:
    k = edges[0] != edges[1]
    loop = torch.arange(x.shape[0])
    e = torch.cat([edges[:, k], torch.stack([loop, loop])], 1)
    return torch.zeros_like(x).index_add(0, e[1], x[e[0]])


@model
def adjacency(x: Tensor, edges: Tensor) -> Tensor:
    n = x.shape[0]
    a = torch.zeros(n, n)
    a[edges[0], edges[1]] = 1.0
    return a @ x


@model
def adjacency_sum(x: Tensor, edges: Tensor, wts: Tensor) -> Tensor:
    n = x.shape[0]
    a = torch.zeros(n, n).index_put((edges[0], edges[1]), wts, accumulate=True)
    return a @ x


@model
def confusion(x: Tensor, lab: Tensor) -> Tensor:
    p = x.argmax(1)
    return (
        torch.zeros(36, dtype=torch.int64).index_add(0, lab * 6 + p, torch.ones_like(p)).view(6, 6)
    )


@model
def running_max(x: Tensor) -> Tensor:
    best = torch.full((x.shape[0],), -1e9)
    for c in range(3):
        b = x[:, c] > best
        best[b] = x[:, c][b]
    return best


@model
def where_scatter(x: Tensor, e: Tensor) -> Tensor:
    r, c = torch.where(e)
    y = x.clone()
    y[r, c] = y[r, c] * 2
    return y


@model
def unpool_seg(img: Tensor) -> Tensor:
    y, at = F.max_pool2d(img, 2, 2, return_indices=True)
    return F.max_unpool2d(y * 2, at, 2, 2)


@model
def nms_like(x: Tensor) -> Tensor:
    keep = torch.ones(x.shape[0], dtype=torch.bool)
    over = (x @ x.T) > 1
    for r in range(3):
        keep &= ~(over[r] & keep[r] & (torch.arange(x.shape[0]) > r))
    return x * keep[:, None]


@model
def masked_mean(x: Tensor, e: Tensor) -> Tensor:
    z = x.clone()
    z[~e] = 0
    return z.sum(1) / e.sum(1).clamp(min=1)


def inputs(nodes: int = 4, chosen: int = 2) -> dict[str, Tensor]:
    """The tensors that the programs name. Those whose first size varies are in ``VARYING``."""
    generator = torch.Generator().manual_seed(nodes)

    def floats(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def integers(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator)

    places = torch.randperm(nodes, generator=generator)
    mask = torch.zeros(nodes, dtype=torch.bool).index_fill(0, places[:chosen], True)
    order = torch.argsort(torch.rand(nodes, 6, generator=generator), 0)
    return {
        "x": floats(nodes, 6),
        "x3": floats(nodes, 4, 6),
        "img": floats(nodes, 3, 8, 8),
        "xi": integers(-9, 9, nodes, 6),
        "xh": floats(nodes, 6).half(),
        "xd": floats(nodes, 6).double(),
        "xb": floats(nodes, 6) > 0,
        "xf": integers(-9, 9, nodes, 6).int(),
        "i": places[:chosen].clone(),
        "j": (places[:chosen] + 1) % 6,
        "neg": places[:chosen] - nodes,
        "i32": places[:chosen].int(),
        "d": integers(0, nodes, 2 * chosen),
        "i2": integers(0, nodes, chosen, 3),
        "c6": torch.tensor([3, 0, -1]),
        "p": torch.tensor([2]),
        "s": torch.tensor(1),
        "m": mask,
        "e": floats(nodes, 6) > 0.3,
        "e3": floats(nodes, 4) > 0,
        "m6": torch.tensor([True, False, False, True, True, False]),
        "v": floats(chosen, 6),
        "vd": floats(2 * chosen, 6),
        "row": floats(6),
        "one": floats(1),
        "sc": torch.tensor(2.5),
        "two": floats(chosen),
        "col": floats(nodes),
        "wide": floats(nodes, 3),
        "v3": floats(chosen, 4, 6),
        "w3": floats(nodes, 3, 6),
        "full": floats(nodes, 6),
        "at": integers(0, nodes, chosen, 6),
        "atu": order[:chosen].clone(),
        "al": torch.argsort(torch.rand(nodes, 6, generator=generator), 1)[:, :3].contiguous(),
        "al2": integers(0, 6, nodes, 5),
        "src5": floats(nodes, 5),
        "lab": integers(0, 6, nodes),
        "edges": integers(0, nodes, 2, 3 * nodes),
        "wts": floats(3 * nodes),
    }


#: The axis of each input whose size varies, and its name.
VARYING = {
    **dict.fromkeys(
        ("x", "x3", "img", "xi", "xh", "xd", "xb", "xf", "m", "e", "e3", "col", "wide", "w3",
         "full", "al", "al2", "src5", "lab"), (0, "nodes")
    ),
    **dict.fromkeys(("i", "j", "neg", "i32", "v", "two", "v3", "at", "atu", "i2"), (0, "chosen")),
    **dict.fromkeys(("d", "vd"), (0, "repeated")),
    "edges": (1, "edges"),
    "wts": (0, "edges"),
}  # fmt: skip


class Written(torch.nn.Module):
    """Programs of the lists above, as one module of the inputs that they name."""

    def __init__(self, programs: Sequence[str]) -> None:
        super().__init__()
        self.programs = programs
        named = {name for each in programs for name in _named(each)}
        self.names = [name for name in inputs() if name in named]

    def forward(self, *given: Tensor) -> list[Tensor]:
        results: list[Tensor] = []
        for each in self.programs:
            result = _result(each, dict(zip(self.names, given, strict=True)))
            results += [result] if isinstance(result, Tensor) else list(result)
        return results


def _named(program: str) -> set[str]:
    if program in MODELS:
        return set(inspect.signature(MODELS[program]).parameters)
    return {node.id for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Name)}


def _result(program: str, given: dict[str, Tensor]) -> Any:
    if program in MODELS:
        return MODELS[program](
            *(given[name] for name in inspect.signature(MODELS[program]).parameters)
        )
    # What is written to is a copy, so that no input changes.
    first = re.search(r"[a-z]\w*", program.replace("torch.", ""))
    assert first
    if program not in CALLS.split("\n"):
        given[first[0]] = given[first[0]].clone()
        exec(program, {"torch": torch}, given)
        return given[first[0]]
    if first[0] in given:
        given[first[0]] = given[first[0]].clone()
    return eval(program, {"torch": torch, "F": F}, given)


def export(module: Written, exporter: str, opset: int, varying: bool) -> onnx.ModelProto:
    """What torch.onnx writes of programs; if sizes vary, those of ``VARYING`` are left open."""
    names = module.names
    given = tuple(inputs(5, 3)[name] for name in names)
    open_axes = {name: dict([VARYING[name]]) for name in names if varying and name in VARYING}
    return write(module, given, names, exporter, opset, open_axes if varying else None)


def write(
    module: torch.nn.Module,
    given: Sequence[Tensor],
    names: Sequence[str],
    exporter: str,
    opset: int,
    open_axes: dict[str, dict[int, str]] | None = None,
) -> onnx.ModelProto:
    """What torch.onnx writes of a module whose ``forward`` takes ``*given``.

    Parameters
    ----------
    exporter : str
        ``dynamo`` or ``legacy``.
    open_axes : dict of str to dict of int to str, optional
        The names of the sizes that vary, by the names of inputs and by axes.
    """
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if exporter == "legacy":
            file = io.BytesIO()
            torch.onnx.export(
                module, tuple(given), file, opset_version=opset, dynamo=False,
                input_names=list(names), dynamic_axes=open_axes or {},
            )  # fmt: skip
            return onnx.load_from_string(file.getvalue())
        automatic = torch.export.Dim.AUTO
        varying = open_axes or {}
        shapes = tuple(dict.fromkeys(varying.get(name, ()), automatic) for name in names)
        program = torch.onnx.export(
            module, tuple(given), opset_version=opset, dynamo=True, input_names=list(names),
            verbose=False, dynamic_shapes=None if open_axes is None else (shapes,),
        )  # fmt: skip
    assert program is not None
    return program.model_proto
