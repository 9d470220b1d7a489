"""Detection and vision."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torchvision import ops

from tvm_scatter.tuning.bench.models.applications import corners

from .zoo import Program, model

Tensor = torch.Tensor
BOXES = torch.tensor([[0, 0.0, 0, 7, 7], [1, 2, 3, 9, 12], [0, 4, 4, 15, 15], [1, 1, 0, 3, 14]])


@model("RoIAlign", "torchvision")
def roi_align() -> Program:
    return Program(ops.RoIAlign(3, 0.5, 2, aligned=True), (torch.randn(2, 3, 8, 8), BOXES))


@model("RoIAlign, adaptive", "torchvision")
def roi_align_adaptive() -> Program:
    return Program(ops.RoIAlign(2, 0.5, -1), (torch.randn(2, 3, 8, 8), BOXES))


@model("MultiScaleRoIAlign", "torchvision")
def multi_scale_roi_align() -> Program:
    class Pool(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pool = ops.MultiScaleRoIAlign(["0", "1"], 2, 2, canonical_scale=8)

        def forward(self, fine: Tensor, coarse: Tensor, boxes: Tensor) -> Tensor:
            return self.pool({"0": fine, "1": coarse}, [boxes], [(16, 16)])

    levels = torch.randn(1, 3, 8, 8), torch.randn(1, 3, 4, 4)
    return Program(Pool(), (*levels, BOXES[:, 1:]))


@model("FeaturePyramidNetwork", "torchvision")
def pyramid() -> Program:
    class Pyramid(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pyramid = ops.FeaturePyramidNetwork([4, 8], 4)

        def forward(self, fine: Tensor, coarse: Tensor) -> Any:
            return self.pyramid({"0": fine, "1": coarse})

    return Program(Pyramid(), (torch.randn(1, 4, 8, 8), torch.randn(1, 8, 4, 4)))


@model("box_iou and matching", "torchvision")
def matching() -> Program:
    """As in the training of detectors: each anchor's best box, and each box its best anchor."""

    def match(anchors: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
        overlap = ops.box_iou(boxes, anchors)
        best, matches = overlap.max(0)
        matches = torch.where(best < 0.3, -1, matches)
        anchor = overlap.argmax(1)
        return matches.scatter(0, anchor, torch.arange(boxes.shape[0])), best

    corners = torch.rand(12, 2) * 8
    anchors = torch.cat([corners, corners + 1 + torch.rand(12, 2) * 6], 1)
    return Program(match, (anchors, anchors[::5] + 0.3))


@model("RetinaNet head", "torchvision")
def retinanet() -> Program:
    from torchvision.models.detection.retinanet import RetinaNetHead

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = RetinaNetHead(8, 2, 3)
            for parameter in self.head.parameters():
                # Scores of untrained heads are all but equal.
                nn.init.normal_(parameter, std=0.2)

        def forward(self, fine: Tensor, coarse: Tensor) -> Any:
            found = self.head([fine, coarse])
            scores, at = found["cls_logits"].flatten(1).sigmoid().topk(5)
            boxes = found["bbox_regression"].gather(1, (at // 3)[..., None].expand(-1, -1, 4))
            return scores, at % 3, boxes

    return Program(Head(), (torch.randn(1, 8, 6, 6), torch.randn(1, 8, 3, 3)))


@model("Heads of SSD", "torchvision")
def ssd() -> Program:
    from torchvision.models.detection.ssd import SSDHead

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = SSDHead([4, 8], [2, 3], 5)

        def forward(self, fine: Tensor, coarse: Tensor) -> Any:
            found = self.head([fine, coarse])
            return found["bbox_regression"], found["cls_logits"].softmax(-1).max(-1)

    return Program(Head(), (torch.randn(1, 4, 6, 6), torch.randn(1, 8, 3, 3)))


@model("Suppression of overlapping boxes by a mask")
def suppression() -> Program:
    """Matrix NMS: no loop, each box is kept if no better one overlaps it."""

    def suppress(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        order = scores.argsort(descending=True)
        overlap = ops.box_iou(boxes[order], boxes[order]).triu(1)
        kept = overlap.amax(0) < 0.5
        mask = torch.zeros_like(kept).scatter(0, order, kept)
        return mask, scores * mask

    corners = torch.rand(10, 2) * 4
    return Program(suppress, (torch.cat([corners, corners + 3], 1), torch.rand(10)))


@model("CenterNet: peaks of a heatmap")
def centernet() -> Program:
    def peaks(heat: Tensor, size: Tensor) -> tuple[Tensor, ...]:
        heat = heat * (functional.max_pool2d(heat, 3, 1, 1) == heat)
        scores, at = heat.flatten(1).topk(6)
        places = at % 64
        sizes = size.flatten(2).gather(2, places[:, None].expand(-1, 2, -1))
        return scores, at // 64, places // 8, places % 8, sizes

    return Program(peaks, (torch.rand(2, 3, 8, 8), torch.randn(2, 2, 8, 8)))


@model("CenterNet: targets of a heatmap")
def centernet_targets() -> Program:
    def draw(centers: Tensor, classes: Tensor) -> Tensor:
        y = torch.arange(8)[:, None] - centers[:, 1, None, None]
        x = torch.arange(8) - centers[:, 0, None, None]
        blobs = torch.exp(-(x * x + y * y) / 4.0)
        return torch.zeros(3, 8, 8).index_reduce(0, classes, blobs, "amax")

    return Program(draw, (torch.randint(0, 8, (5, 2)), torch.randint(0, 3, (5,))))


@model("DETR: targets of matched queries")
def detr() -> Program:
    def targets(query: Tensor, label: Tensor, box: Tensor, predicted: Tensor) -> Any:
        classes = torch.full((2, 6), 4)
        batch = torch.arange(2)[:, None].expand(-1, 3)
        classes[batch, query] = label
        return classes, (predicted[batch, query] - box).abs().sum()

    query = torch.stack([torch.randperm(6)[:3] for _ in range(2)])
    boxes = torch.rand(2, 3, 4), torch.rand(2, 6, 4)
    return Program(targets, (query, torch.randint(0, 4, (2, 3)), *boxes))


@model("PointNet++: set abstraction")
def pointnet() -> Program:
    class Abstraction(nn.Module):
        """Farthest points, their neighbours in a ball, and the maximum of their features."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8))

        def forward(self, points: Tensor) -> Tensor:
            batch = torch.arange(points.shape[0])
            chosen = torch.zeros(points.shape[0], 4, dtype=torch.int64)
            nearest = torch.full(points.shape[:2], math.inf)
            at = chosen[:, 0]
            for i in range(4):
                chosen[:, i] = at
                nearest = nearest.minimum((points - points[batch, at][:, None]).square().sum(-1))
                at = nearest.argmax(-1)
            centers = points.gather(1, chosen[..., None].expand(-1, -1, 3))
            distances = torch.cdist(centers, points)
            order = torch.arange(points.shape[1]).expand(distances.shape)
            order = torch.where(distances > 1, points.shape[1], order).sort(-1).values[..., :5]
            order = torch.where(order == points.shape[1], order[..., :1], order)
            grouped = points[batch[:, None, None], order] - centers[:, :, None]
            return self.layers(grouped).amax(2)

    return Program(Abstraction(), (torch.randn(2, 16, 3),))


@model("PointPillars: pillars to a bird's-eye view")
def pillars() -> Program:
    def scatter(features: Tensor, places: Tensor) -> Tensor:
        canvas = torch.zeros(2, 4, 6 * 8)
        flat = places[:, 1] * 8 + places[:, 2]
        canvas[places[:, 0], :, flat] = features
        return canvas.view(2, 4, 6, 8)

    cells = torch.randperm(96)[:20]
    places = torch.stack([cells // 48, cells % 48 // 8, cells % 8], 1)
    return Program(scatter, (torch.randn(20, 4), places))


@model("Lift, splat: images to a bird's-eye view")
def lift_splat() -> Program:
    def splat(depth: Tensor, features: Tensor, cells: Tensor) -> Tensor:
        lifted = depth.softmax(1)[:, None] * features[:, :, None]
        rows = lifted.permute(0, 2, 3, 4, 1).flatten(0, 3)
        kept = (cells >= 0) & (cells < 36)
        rows = rows * kept[:, None]
        return torch.zeros(36, 3).index_add(0, cells.clamp(0, 35), rows).T.reshape(3, 6, 6)

    shape = 2 * 5 * 4 * 4
    inputs = torch.randn(2, 5, 4, 4), torch.randn(2, 3, 4, 4), torch.randint(-3, 40, (shape,))
    return Program(splat, inputs)


@model("Softmax splatting")
def splatting() -> Program:
    """Forward warp: each pixel is added to the four around where the flow takes it."""

    def warp(image: Tensor, flow: Tensor, importance: Tensor) -> Tensor:
        weighted = torch.cat([image * importance.exp(), importance.exp()], 1).flatten(2)
        total = torch.zeros_like(weighted)
        for place, weight in corners(flow):
            values = weighted * weight.flatten(1)[:, None]
            total = total.scatter_add(2, place[:, None].expand_as(weighted), values)
        image, norm = total[:, :-1], total[:, -1:]
        return (image / (norm + 1e-6)).unflatten(2, flow.shape[-2:])

    inputs = torch.rand(2, 3, 6, 7), torch.randn(2, 2, 6, 7) * 2, torch.randn(2, 1, 6, 7)
    return Program(warp, inputs)


@model("SegNet")
def segnet() -> Program:
    class SegNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.pool = nn.Conv2d(3, 4, 3, padding=1), nn.MaxPool2d(2, 2, 0, 1, True)
            self.middle = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
            self.unpool, self.up = nn.MaxUnpool2d(2, 2), nn.Conv2d(4, 5, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            x, first = self.pool(self.down(x).relu())
            x, second = self.pool(self.middle(x))
            return self.up(self.unpool(self.unpool(x, second), first)).argmax(1)

    return Program(SegNet(), (torch.randn(1, 3, 8, 8),))


@model("Swin: blocks with shifted windows", "torchvision")
def swin() -> Program:
    from torchvision.models.swin_transformer import SwinTransformerBlock

    block = SwinTransformerBlock(8, 2, [2, 2], [1, 1])
    return Program(block, (torch.randn(1, 4, 4, 8),))


@model("U-Net")
def unet() -> Program:
    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.middle = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
            self.up, self.last = nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(8, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            fine = self.down(x).relu()
            coarse = self.middle(functional.max_pool2d(fine, 2)).relu()
            return self.last(torch.cat([fine, self.up(coarse)], 1))

    return Program(UNet(), (torch.randn(1, 1, 8, 8),))


@model("Masked autoencoder: patches kept and restored")
def masked_autoencoder() -> Program:
    def mask(patches: Tensor, noise: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
        order = noise.argsort(1)
        restore = order.argsort(1)
        width = patches.shape[-1]
        kept = patches.gather(1, order[:, :4, None].expand(-1, -1, width))
        hidden = torch.ones_like(noise).scatter(1, order[:, :4], 0.0)
        filled = torch.cat([kept, token.expand(patches.shape[0], 5, -1)], 1)
        return filled.gather(1, restore[..., None].expand(-1, -1, width)), hidden

    return Program(mask, (torch.randn(2, 9, 3), torch.rand(2, 9), torch.randn(1, 1, 3)))


@model("VQ-VAE: moving average of a codebook")
def codebook() -> Program:
    class Codebook(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("codes", torch.randn(6, 4))
            self.register_buffer("counts", torch.ones(6))
            self.register_buffer("sums", self.codes.clone())

        def forward(self, x: Tensor) -> Tensor:
            nearest = torch.cdist(x, self.codes).argmin(1)
            quantized = self.codes[nearest]
            counts = torch.zeros(6).scatter_add(0, nearest, torch.ones_like(x[:, 0]))
            sums = torch.zeros(6, 4).index_add(0, nearest, x)
            self.counts.mul_(0.9).add_(counts, alpha=0.1)
            self.sums.mul_(0.9).add_(sums, alpha=0.1)
            self.codes.copy_(self.sums / self.counts.clamp(min=1e-3)[:, None])
            return quantized

    return Program(Codebook(), (torch.randn(20, 4),))


@model("Rendering of points with a z-buffer")
def z_buffer() -> Program:
    def render(points: Tensor, colors: Tensor) -> tuple[Tensor, Tensor]:
        pixel = (points[:, :2] / points[:, 2:] * 4 + 4).floor().long().clamp(0, 7)
        at = pixel[:, 1] * 8 + pixel[:, 0]
        depth = torch.full((64,), math.inf).scatter_reduce(0, at, points[:, 2], "amin")
        front = points[:, 2] <= depth[at]
        image = torch.zeros(65, 3).index_copy(0, torch.where(front, at, 64), colors)
        return image[:64].view(8, 8, 3), depth.view(8, 8)

    points = torch.cat([torch.randn(50, 2), torch.rand(50, 1) + 1], 1)
    return Program(render, (points, torch.rand(50, 3)))


@model("Voxels: means of points")
def voxels() -> Program:
    def voxelize(points: Tensor) -> tuple[Tensor, Tensor]:
        cell = (points[:, :3] / 0.5).floor().long().clamp(0, 3)
        flat = (cell[:, 0] * 4 + cell[:, 1]) * 4 + cell[:, 2]
        counts = flat.bincount(minlength=64)[:64]
        sums = torch.zeros(64, 4).index_add(0, flat, points)
        return sums / counts.clamp(min=1)[:, None], counts

    return Program(voxelize, (torch.rand(40, 4) * 2,))


@model("Deformable sampling")
def deformable() -> Program:
    """Deformable convolution by grid_sample, one tap after the other."""

    class Deformable(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.offsets, self.mix = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(12, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            offsets = self.offsets(x).unflatten(1, (4, 2))
            rows, columns = torch.meshgrid(
                torch.linspace(-1, 1, 6), torch.linspace(-1, 1, 6), indexing="ij"
            )
            grid = torch.stack([columns, rows], -1)
            taps = [
                functional.grid_sample(x, grid + offset.permute(0, 2, 3, 1), align_corners=True)
                for offset in offsets.unbind(1)
            ]
            return self.mix(torch.cat(taps, 1))

    return Program(Deformable(), (torch.randn(2, 3, 6, 6),))
