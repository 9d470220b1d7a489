"""Idioms that models of many fields hold."""

from __future__ import annotations

import torch

from .zoo import Program, model


@model("Histogram by scatter_add")
def histogram() -> Program:
    def count(values: torch.Tensor) -> torch.Tensor:
        return torch.zeros(10, dtype=torch.int64).scatter_add(0, values, torch.ones_like(values))

    return Program(count, (torch.randint(0, 10, (50,)),))
