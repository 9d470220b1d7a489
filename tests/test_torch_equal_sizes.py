"""Sizes that PyTorch knows to be equal, where TVM infers another formula for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_harness import assert_same, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

WEIGHTS = torch.randn(4, 1, 10), torch.randn(4, 2, 8)


def two_convolutions(x: Any) -> Any:
    """The positions of a model of speech: the result of the second one is trimmed."""
    sound = torch.conv1d(x[None, None], WEIGHTS[0], stride=5)
    return sound + torch.conv1d(sound, WEIGHTS[1], padding=4, groups=2)[:, :, :-1]


def differences(x: Any) -> Any:
    return torch.where(x[1:] > 0, x[:-1] * x[1:], x.narrow(0, 0, x.shape[0] - 1))


@pytest.mark.parametrize("function", [two_convolutions, differences])
def test_formulas_of_one_size(function: Callable[[Any], Any]) -> None:
    program = export(function, [torch.randn(60)], [{0: torch.export.Dim.AUTO}])
    machine = compile_for(from_exported_program(program))
    for size in (60, 97):
        x = torch.randn(size)
        assert_same(run(machine, [x])[0], function(x), f"size {size}")
