"""Products of floats that are made of positions and sizes, which TVM's analysis stops at."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.export import Dim  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch_harness import assert_same, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def weighted_by_position(x: Any) -> Any:
    place = (torch.arange(x.shape[0]) / x.shape[0])[:, None]
    return x * place.sin() + place.cos() * place


def read_at_steps(x: Any) -> Any:
    places = torch.arange(x.shape[0] * 2) * (x.shape[0] / (2 * x.shape[0] + 1))
    return x[places.long()]


def stretched(x: Any) -> Any:
    return functional.interpolate(x[None], size=x.shape[0], mode="linear")


@pytest.mark.parametrize("function", [weighted_by_position, read_at_steps, stretched])
def test_agrees_with_pytorch(function: Any, device: str) -> None:
    program = export(function, [torch.randn(6, 9)], [{0: Dim.AUTO, 1: Dim.AUTO}])
    machine = compile_for(from_exported_program(program), device)
    for shape in ((6, 9), (3, 7), (11, 4)):
        x = torch.randn(*shape)
        [found] = run(machine, [x], device)
        assert_same(found, function(x))
