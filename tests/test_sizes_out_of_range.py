"""Sizes that a program was not exported for: an error in words, not the end of the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tvm  # noqa: E402
from torch_harness import assert_same, compile_for, export, run  # noqa: E402
from tvm import relax, tirx  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

ANY = torch.export.Dim("rows", min=0, max=64)
AUTO = torch.export.Dim.AUTO


def compiled(function: Callable[..., Any], rows: Any, device: str = "llvm") -> Any:
    """A function of a tensor of shape (rows, 3)."""
    program = export(function, [torch.randn(6, 3)], [{0: rows}])
    return compile_for(from_exported_program(program), device)


@pytest.mark.parametrize("shifts", [(1, 0), (2, None), ((1, -1), (0, 1))])
@pytest.mark.turns(3)
def test_roll_of_any_size(shifts: Any) -> None:
    machine = compiled(lambda x: x.roll(*shifts), ANY)
    for rows in (5, 1, 0):
        x = torch.randn(rows, 3)
        assert_same(run(machine, [x])[0], x.roll(*shifts), f"{rows} rows")


def test_a_negative_size_is_an_error(device: str) -> None:
    machine = compiled(lambda x: x.diff(dim=0) * 2, AUTO, device)
    for rows in (5, 1):
        x = torch.randn(rows, 3)
        assert_same(run(machine, [x], device)[0], x.diff(dim=0) * 2, f"{rows} rows")
    with pytest.raises(ValueError, match=r"negative size -1, because dimension 0 of .* has size 0"):
        run(machine, [torch.randn(0, 3)], device)


def test_a_size_of_a_branch_that_does_not_run() -> None:
    def model(x: Any) -> Any:
        return torch.cond(x.sum() > 100, lambda x: x.diff(dim=0).sum(0), lambda x: x.sum(0), (x,))

    machine = compiled(model, AUTO)
    for rows in (3, 0):
        x = torch.randn(rows, 3)
        assert_same(run(machine, [x])[0], x.sum(0), f"{rows} rows")


@pytest.mark.parametrize(
    ("least", "said"),
    [
        (-3, "dimension 0 of inputs_0 must be at least 3, but is {}"),
        # PyTorch's least size of any program is none that this one needs.
        (-2, "slice of size {} in dimension 0 must have"),
    ],
)
def test_a_slice_that_is_too_short_is_an_error(least: int, said: str) -> None:
    def model(x: Any) -> Any:
        written = x.clone()
        written[least:, 1:] = 2.0
        return written, x[least:] * 2

    machine = compiled(model, AUTO)
    x = torch.randn(5, 3)
    for result, expected in zip(run(machine, [x]), model(x), strict=True):
        assert_same(result, expected)
    for rows in (-least - 1, 0):
        with pytest.raises(ValueError, match=said.format(rows)):
            run(machine, [torch.randn(rows, 3)])


def test_division_by_a_size_of_zero_is_an_error() -> None:
    rows, parts = tirx.Var("rows", "int64"), tirx.Var("parts", "int64")
    x = relax.Var("x", relax.TensorType([rows], "float32"))
    y = relax.Var("y", relax.TensorType([parts], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        ones = relax.op.full([tirx.floordiv(rows, parts)], relax.const(1.0, "float32"))
        builder.emit_func_output(builder.emit(ones))
    machine = compile_for(builder.get())

    def of(*sizes: int) -> Any:
        tensors = [tvm.runtime.empty((size,), "float32") for size in sizes]
        return machine["main"](*tensors).shape

    assert of(6, 2) == (3,)
    with pytest.raises(ValueError, match="divided by zero, because dimension 0 of y has size 0"):
        of(6, 0)
