"""Operators of tensors without elements, against PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tvm  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch_harness import assert_same, check, compile_for, export, run  # noqa: E402
from tvm import relax  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

import tvm_scatter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def scanned(x: Any) -> Sequence[Any]:
    """Running sums and extremes, and orders, along both dimensions."""
    return (
        *(x.cumsum(0), x.cumsum(1), x.cumprod(0), x.cumprod(-1), x.long().cumsum(0)),
        *(x.cumsum(1, dtype=torch.float64), x.logcumsumexp(0), *x.cummax(0), *x.cummin(1)),
        *(*torch.sort(x, dim=0, stable=True), *x.sort(1), x.argsort(0), x.flip(0), x.softmax(0)),
    )


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 0)], ids=str)
@pytest.mark.turns(3)
def test_scans_of_nothing(shape: tuple[int, ...]) -> None:
    check(scanned, torch.zeros(shape))


@pytest.mark.parametrize("shape", [(0, 0, 2), (3, 0), (3, 2, 0)], ids=str)
def test_nothing_is_filled_with_a_number(shape: tuple[int, ...], device: str) -> None:
    def filled(x: Any, index: Any) -> Sequence[Any]:
        return (
            x.index_fill(0, index, 1),
            x.index_add(0, index, torch.ones(1).expand(len(index), *shape[1:])),
        )

    check(
        filled, torch.zeros(shape), torch.zeros(min(shape[0], 2), dtype=torch.long), device=device
    )


def test_rows_repeated_of_nothing() -> None:
    def model(x: Any, counts: Any) -> Any:
        return x.repeat_interleave((counts > 1).long(), 0)

    def inputs(rows: int) -> list[Any]:
        return [torch.randn(rows, 3), torch.arange(rows)]

    rows = Dim("rows")
    program = export(model, inputs(5), [{0: rows}, {0: rows}])
    machine = compile_for(from_exported_program(program))
    for count in (5, 0, 1, 2):
        given = inputs(count)
        assert_same(run(machine, given)[0], model(*given), f"{count} rows")


def test_the_median_of_nothing() -> None:
    check(lambda x: (x.median(), x.nanmedian()), torch.zeros(3, 0))
    with pytest.raises(Exception, match="median: there is no median of no integers"):
        check(lambda x: x.median(), torch.zeros(0, dtype=torch.int64))


def reduced(x: Any) -> Sequence[Any]:
    """Means, variances and norms of all, and along each dimension that is or is not empty."""
    results = [
        x.mean(),
        x.var(),
        x.std(),
        *torch.var_mean(x),
        x.norm(0),
        x.mean(dtype=torch.double),
    ]
    for dim in range(x.ndim):
        results += [x.mean(dim), x.mean(dim - x.ndim, keepdim=True), x.std(dim)]
        results += [x.var(dim, correction=0, keepdim=True), *torch.var_mean(x, dim), x.norm(0, dim)]
    return results


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0,), (2, 0, 3)], ids=str)
@pytest.mark.turns(2)
def test_means_of_nothing(shape: tuple[int, ...]) -> None:
    check(reduced, torch.zeros(shape))


def test_means_of_half_of_nothing() -> None:
    half = torch.zeros(2, 0, dtype=torch.float16)
    check(lambda x, y: (x.mean(1), x.var(1), y.mean(), y.std()), half, half.bfloat16())


def test_means_of_a_dynamic_number() -> None:
    def model(x: Any) -> Any:
        return x.mean(), x.mean(0), x.mean(1), x.var(0)

    program = export(model, [torch.randn(4, 3)], [{0: Dim("rows")}])
    machine = compile_for(from_exported_program(program))
    for count in (4, 0, 1, 2):
        x = torch.randn(count, 3)
        for actual, expected in zip(run(machine, [x]), model(x), strict=True):
            assert_same(actual, expected, f"{count} rows")


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 0), (2, 0, 3)], ids=str)
@pytest.mark.turns(4)
def test_triangles_of_nothing(shape: tuple[int, ...]) -> None:
    def triangles(x: Any, i: Any) -> Any:
        return (*(x.tril(k) for k in (-1, 0, 1)), *(x.triu(k) for k in (-2, 0, 2)), i.tril())

    check(triangles, torch.zeros(shape), torch.zeros(shape, dtype=torch.bool))


def test_an_empty_list_of_dimensions_is_all() -> None:
    def reductions(x: Any) -> Any:
        norms = [torch.linalg.vector_norm(x, order, ()) for order in (0, 1, 2, 3.5, float("inf"))]
        moments = [x.mean(()), x.var(()), torch.std(x, ())]
        return (*norms, *moments, x.mean((), keepdim=True, dtype=torch.float64), x.sum(()))

    check(reductions, torch.randn(2, 3, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("new", [torch.zeros_like, torch.ones_like, torch.empty_like])
def test_a_program_whose_last_constant_is_empty(new: Any) -> None:
    """TVM folds it, and cannot load the program."""

    def function(x: Any, index: Any, rows: Any) -> Any:
        return new(x).scatter_reduce(0, index.reshape(-1, 1).expand(rows.shape), rows, "sum")

    inputs = [torch.zeros(4, 0), torch.zeros(3, dtype=torch.int64), torch.zeros(3, 0)]
    module = from_exported_program(export(function, inputs))
    executable = tvm.compile(module, "llvm", relax_pipeline=tvm_scatter.pipeline("llvm"))
    built = relax.VirtualMachine(executable, tvm.cpu())
    assert_same(*run(built, inputs), torch.zeros(4, 0))
