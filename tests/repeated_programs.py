"""Random PyTorch programs that compute the same of their inputs again and again.

A program is made of layers. Each picks edges by a mask, whose number only the data say, computes
numbers of them, and sums what it reads of the nodes. Layers are equal, nearly equal, or follow a
write to what an earlier one has read.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import torch

NODES, EDGES, WIDTH = 12, 40, 8
_MASKS: tuple[Callable[[Any], Any], ...] = (
    lambda ends: ends[0] != ends[1],
    lambda ends: ends[0] < ends[1],
    lambda ends: (ends[0] + ends[1]) % 3 != 0,
    lambda ends: ends[0] < 0,
    lambda ends: ends[1] >= 0,
)


def inputs(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Features of small whole numbers, and the ends of edges, sometimes of none."""
    generator = torch.Generator().manual_seed(seed)
    edges = EDGES if seed % 5 else 1
    x = torch.randint(-2, 3, (NODES, WIDTH), generator=generator).float()
    return x, torch.randint(0, NODES, (2, edges), generator=generator)


class Program(torch.nn.Module):
    """The layers that a seed draws."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        random = Random(seed)
        kinds = [self._draw(random) for _ in range(random.randint(1, 2))]
        self.layers = [random.choice(kinds) for _ in range(random.randint(2, 4))]
        #: What is written before each layer.
        self.writes = [random.choice(["", "", "", "ends", "copy"]) for _ in self.layers]
        self.returns_all = random.random() < 0.3

    @staticmethod
    def _draw(random: Random) -> dict[str, Any]:
        return {
            "mask": random.choice(_MASKS),
            "select": random.choice(["mask", "nonzero", "where"]),
            "loops": random.random() < 0.4,
            "weight": random.choice(["none", "degree", "degree", "position"]),
            "reduce": random.choice(["add", "add", "amax", "mean"]),
            "by": random.choice([0, 1, 1]),
        }

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> Any:
        results = []
        ends = ends.clone()
        for kind, write in zip(self.layers, self.writes, strict=True):
            if write == "ends":
                ends[0, :1] = ends[1, :1]
            given = ends.clone() if write == "copy" else ends
            x = x + self._layer(x, given, kind)
            results.append(x)
        return tuple(results) if self.returns_all else x

    def _layer(self, x: torch.Tensor, ends: torch.Tensor, kind: dict[str, Any]) -> torch.Tensor:
        ends = _selected(ends, kind["mask"](ends), kind["select"])
        if kind["loops"]:
            loops = torch.arange(NODES).expand(2, -1)
            ends = torch.cat([ends, loops], 1)
        source, target = ends[1 - kind["by"]], ends[kind["by"]]
        rows = x[source]
        if kind["weight"] == "degree":
            ones = torch.ones(target.shape[0])
            degree = torch.zeros(NODES).index_add(0, target, ones)
            rows = rows * (degree[source] - degree[target])[:, None]
        elif kind["weight"] == "position":
            # No running sum: TVM's own needs threads of a warp in step, as on a GPU alone.
            rows = rows * (torch.arange(target.shape[0]) % 3)[:, None]
        index = target[:, None].expand(-1, WIDTH)
        if kind["reduce"] == "add":
            return torch.zeros(NODES, WIDTH).scatter_add(0, index, rows)
        zeros = torch.zeros(NODES, WIDTH)
        return zeros.scatter_reduce(0, index, rows, kind["reduce"], include_self=False).floor()


def _selected(ends: torch.Tensor, mask: torch.Tensor, how: str) -> torch.Tensor:
    if how == "mask":
        return ends[:, mask]
    if how == "nonzero":
        return ends.index_select(1, mask.nonzero().squeeze(1))
    return ends[:, torch.where(mask)[0]]
