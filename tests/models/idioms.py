"""Idioms that models of many fields hold."""

from __future__ import annotations

import torch

from .zoo import Program, model


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
