"""Training steps: a loss and its gradients, traced by ``make_fx`` as docs/exporting.md says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from torch_geometric import nn as geometric

from .zoo import Program, model


def training_step(net: nn.Module, loss: Callable[..., Any], *inputs: torch.Tensor) -> Program:
    """The loss and the gradients of all parameters, which are the first inputs.

    ``loss`` takes the network as a function, and the inputs.
    """
    names, values = zip(*net.named_parameters(), strict=True)

    def step(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        parameters, given = tensors[: len(names)], tensors[len(names) :]
        named = dict(zip(names, parameters, strict=True))
        value = loss(lambda *args: torch.func.functional_call(net, named, args), *given)
        return value, *torch.autograd.grad(value, parameters)

    traced = make_fx(step)(*values, *inputs)
    return Program(traced, (*(each.detach() for each in values), *inputs))


def classified(net: Callable[..., Any], *inputs: torch.Tensor) -> torch.Tensor:
    """Cross entropy of the network's answer; the last input holds the classes."""
    *given, classes = inputs
    return functional.cross_entropy(net(*given), classes)


def images(classes: int, *size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(2, *size), torch.randint(0, classes, (2,))


def step_on_graph(layer: nn.Module) -> Program:
    """A training step that classifies nodes. The layer has 8 input channels and 4 classes."""
    edges = torch.randint(0, 7, (2, 20))
    return training_step(layer, classified, torch.randn(7, 8), edges, torch.randint(0, 4, (7,)))


@model("Training step of GCN", "torch_geometric")
def gcn() -> Program:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = geometric.GCNConv(8, 8, add_self_loops=False)
            self.second = geometric.GCNConv(8, 4, add_self_loops=False)

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x, edges).relu(), edges)

    return step_on_graph(Net())


@model("Training step of GAT", "torch_geometric")
def gat() -> Program:
    return step_on_graph(geometric.GATConv(8, 2, heads=2, add_self_loops=False))


@model("Training step of GraphSAGE", "torch_geometric")
def sage() -> Program:
    return step_on_graph(geometric.SAGEConv(8, 4, aggr="max"))


@model("Training step of GIN", "torch_geometric")
def gin() -> Program:
    return step_on_graph(
        geometric.GINConv(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)))
    )


@model("Training step of EdgeConv", "torch_geometric")
def edge_conv() -> Program:
    return step_on_graph(geometric.EdgeConv(nn.Sequential(nn.Linear(16, 4), nn.ReLU())))


@model("Training step of PNA", "torch_geometric")
def pna() -> Program:
    scalers, degrees = ["identity", "amplification"], torch.tensor([0, 2, 3, 2])
    return step_on_graph(geometric.PNAConv(8, 4, ["mean", "min", "max", "std"], scalers, degrees))


@model("Training step of a bigram model")
def bigram() -> Program:
    def loss(net: Any, words: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        scores = net(words).flatten(0, 1)
        return functional.cross_entropy(
            scores, following.flatten(), ignore_index=0, label_smoothing=0.1
        )

    net = nn.Sequential(nn.Embedding(12, 8, padding_idx=0), nn.Linear(8, 12))
    return training_step(net, loss, *torch.randint(0, 12, (2, 3, 5)))


@model("Training step of a classifier of texts")
def texts() -> Program:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.classes = nn.EmbeddingBag(12, 8), nn.Linear(8, 4)

        def forward(self, words: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
            return self.classes(self.words(words, offsets))

    offsets = torch.tensor([0, 3, 4])
    words, classes = torch.randint(0, 12, (9,)), torch.randint(0, 4, (3,))
    return training_step(Net(), classified, words, offsets, classes)


@model("Training step of a CNN")
def cnn() -> Program:
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(24, 5),
    )
    return training_step(net, classified, *images(5, 3, 8, 8))


@model("Training step of a CNN with norms")
def cnn_with_norms() -> Program:
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4, track_running_stats=False),
        nn.SiLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(4, 8, 3, groups=2, dilation=2, padding=2),
        nn.GroupNorm(2, 8),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )
    return training_step(net, classified, *images(5, 3, 8, 8))


@model("Training step of a classifier of volumes")
def volumes() -> Program:
    net = nn.Sequential(
        nn.Conv3d(1, 2, 3, padding=1), nn.ELU(), nn.MaxPool3d(2), nn.Flatten(), nn.Linear(16, 5)
    )
    return training_step(net, classified, *images(5, 1, 4, 4, 4))


@model("Training step of a convolutional autoencoder")
def autoencoder() -> Program:
    def loss(net: Any, x: torch.Tensor) -> torch.Tensor:
        return functional.binary_cross_entropy(net(x), x)

    net = nn.Sequential(
        nn.Conv2d(1, 4, 4, 2, 1), nn.Tanh(), nn.ConvTranspose2d(4, 1, 4, 2, 1), nn.Sigmoid()
    )
    return training_step(net, loss, torch.rand(2, 1, 8, 8))


@model("Training step of a transformer block")
def transformer() -> Program:
    net = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, activation="gelu")

    def loss(net: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.mse_loss(net(x), y)

    return training_step(net, loss, *torch.randn(2, 2, 5, 8))


@model("Training step of a U-Net")
def unet() -> Program:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Conv2d(1, 4, 3, padding=1)
            self.middle = nn.Conv2d(4, 8, 3, padding=1)
            self.up = nn.Conv2d(12, 3, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            fine = self.down(x).relu()
            coarse = self.middle(functional.max_pool2d(fine, 2)).relu()
            coarse = functional.interpolate(coarse, scale_factor=2, mode="bilinear")
            return self.up(torch.cat([fine, coarse], 1))

    return training_step(Net(), classified, torch.randn(2, 1, 8, 8), torch.randint(0, 3, (2, 8, 8)))


@model("Training step of SegNet")
def segnet() -> Program:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.up = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 3, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            pooled, at = functional.max_pool2d(self.down(x).relu(), 2, return_indices=True)
            return self.up(functional.max_unpool2d(pooled, at, 2))

    return training_step(Net(), classified, torch.randn(2, 1, 8, 8), torch.randint(0, 3, (2, 8, 8)))


@model("Training step of a spatial transformer")
def spatial_transformer() -> Program:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pose, self.classes = nn.Linear(36, 6), nn.Conv2d(1, 2, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            pose = self.pose(x.flatten(1)).view(-1, 2, 3)
            grid = functional.affine_grid(pose, [x.shape[0], 1, 5, 5], align_corners=False)
            sampled = functional.grid_sample(x, grid, align_corners=False)
            return self.classes(sampled).mean((2, 3))

    return training_step(Net(), classified, *images(2, 1, 6, 6))


@model("Training step of a head on regions", "torchvision")
def regions() -> Program:
    from torchvision.ops import roi_align

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features, self.classes = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(16, 3)

        def forward(self, x: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
            regions = roi_align(self.features(x), boxes, (2, 2), 0.5, 2, aligned=True)
            return self.classes(regions.flatten(1))

    boxes = torch.tensor([[0, 0.0, 0, 7, 7], [1, 2, 3, 9, 12], [0, 4, 4, 15, 15]])
    classes = torch.randint(0, 3, (3,))
    with torch._dynamo.config.patch(error_on_nested_fx_trace=False):
        return training_step(Net(), classified, torch.randn(2, 3, 8, 8), boxes, classes)


@model("Training step of style transfer")
def style() -> Program:
    net = nn.Sequential(
        nn.ReflectionPad2d(2),
        nn.Conv2d(1, 4, 5),
        nn.InstanceNorm2d(4, affine=True),
        nn.ReLU(),
        nn.Upsample(scale_factor=2),
        nn.ReplicationPad2d(1),
        nn.Conv2d(4, 1, 3),
        nn.Hardtanh(),
    )

    def loss(net: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.l1_loss(net(x), y)

    return training_step(net, loss, torch.randn(2, 1, 6, 6), torch.randn(2, 1, 12, 12))


@model("Training step of PointNet")
def pointnet() -> Program:
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4))

    def loss(net: Any, points: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(net(points).max(1).values, classes)

    return training_step(net, loss, torch.randn(2, 6, 3), torch.randint(0, 4, (2,)))


@model("Training step of maxima of segments")
def segments() -> Program:
    def loss(net: Any, x: torch.Tensor, at: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        at = at[:, None].expand(-1, 4)
        found = torch.zeros(3, 4).scatter_reduce(0, at, net(x), "amax", include_self=False)
        return functional.cross_entropy(found, classes)

    at = torch.tensor([0, 1, 2, 0, 1, 2, 1, 1])
    return training_step(nn.Linear(3, 4), loss, torch.randn(8, 3), at, torch.randint(0, 4, (3,)))


@model("Training step of ranking")
def ranking() -> Program:
    """Gains of the sorted list, as in ListMLE and NDCG losses."""

    def loss(net: Any, x: torch.Tensor, gains: torch.Tensor) -> torch.Tensor:
        scores, order = net(x).squeeze(-1).sort(descending=True)
        return -(scores.cumsum(-1) * gains.gather(-1, order)).mean()

    return training_step(nn.Linear(5, 1), loss, torch.randn(3, 6, 5), torch.rand(3, 6))


@model("Training step of survival analysis")
def survival() -> Program:
    def loss(net: Any, x: torch.Tensor, alive: torch.Tensor) -> torch.Tensor:
        curve = (1 - net(x).sigmoid()).cumprod(1)
        return functional.binary_cross_entropy(curve, alive)

    return training_step(nn.Linear(5, 4), loss, torch.randn(3, 5), torch.rand(3, 4).round())


@model("Step of Adam on an embedding")
def adam() -> Program:
    """The new parameters and moments, from the old ones."""
    net = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 3))
    names, values = zip(*net.named_parameters(), strict=True)
    count = len(values)

    def step(*tensors: torch.Tensor) -> list[torch.Tensor]:
        old, means, squares, (words, classes) = (
            list(tensors[i * count : (i + 1) * count]) for i in range(4)
        )
        scores = torch.func.functional_call(net, dict(zip(names, old, strict=True)), (words,))
        found = torch.autograd.grad(functional.cross_entropy(scores, classes), old)
        means = torch._foreach_lerp(means, found, 0.1)
        squares = torch._foreach_lerp(squares, torch._foreach_mul(found, found), 0.01)
        roots = torch._foreach_add(torch._foreach_sqrt(squares), 1e-8)
        with torch.no_grad():
            new = torch._foreach_addcdiv(old, means, roots, value=-0.1)
        return [*new, *means, *squares]

    moments = [torch.zeros_like(each) for each in values]
    examples = torch.randint(0, 10, (5,)), torch.randint(0, 3, (5,))
    inputs = (*values, *moments, *moments, *examples)
    return Program(make_fx(step)(*inputs), [each.detach() for each in inputs])
