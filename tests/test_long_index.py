"""Places that a gather reads, computed by many operators from sizes that vary, on a GPU."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.export import Dim  # noqa: E402
from torch_harness import assert_same, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def biases(x: Any, table: Any) -> Any:
    """T5's, by how far apart two words are: exact for near ones, in steps of logarithms beyond."""
    places = torch.arange(x.shape[0])
    apart = places[None] - places[:, None]
    distance = apart.abs()
    steps = (torch.log(distance.float().clamp(min=1) / 8) / math.log(16) * 8).long() + 8
    bucket = torch.where(distance < 8, distance, steps.clamp(max=15)) + (apart > 0) * 16
    return table[bucket].permute(2, 0, 1)


@pytest.mark.timeout(60)
def test_it_compiles_in_seconds(device: str) -> None:
    table = torch.randn(32, 2)
    program = export(biases, [torch.randn(9, 3), table], [{0: Dim.AUTO}, {}])
    machine = compile_for(from_exported_program(program), device)
    for words in (9, 2, 40):
        inputs = [torch.randn(words, 3), table]
        [found] = run(machine, inputs, device)
        assert_same(found, biases(*inputs))
