"""Sequences of any length that are padded and cut into chunks, as Mamba-2 and Qwen3-Next do it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.export import Dim
from torch.nn import functional
from torch_harness import assert_same, compile_for, export, run, to_tvm
from tvm import tirx
from tvm.relax.frontend.torch import from_exported_program

from tvm_scatter.importers.torch.cancelled import whole_quotient
from tvm_scatter.ops.shapes import same_size

pytestmark = pytest.mark.filterwarnings("ignore")


def cut(x: Any, chunk: int) -> Any:
    """Batch, length, features to batch, chunks, rows of a chunk, features."""
    more = (chunk - x.shape[1] % chunk) % chunk
    return functional.pad(x, (0, 0, 0, more)).reshape(x.shape[0], -1, chunk, x.shape[2])


def of_chunks(x: Any) -> Any:
    """PyTorch takes the size of a chunk for a quotient of quotients."""
    parts = cut(x, 4)
    sums = (parts @ parts.transpose(-1, -2)) @ parts
    return sums.reshape(x.shape[0], -1, x.shape[2])[:, : x.shape[1]]


def of_one_chunk(x: Any) -> Any:
    parts = cut(x, 16)
    return parts @ parts.transpose(-1, -2)


def check(function: Any, lengths: tuple[int, ...], device: str) -> Any:
    """Export for two sequences of the first length, and run with three of the others, too."""
    sizes = [{0: Dim.AUTO, 1: Dim.AUTO}]
    first, *others = (torch.randn(2 + bool(at), n, 8) for at, n in enumerate(lengths))
    machine = compile_for(from_exported_program(export(function, [first], sizes)), device)
    for given in (first, *others):
        assert_same(*run(machine, [given], device), function(given))
    return machine


@pytest.mark.on_cpu
def test_chunks(device: str) -> None:
    check(of_chunks, (9, 14, 5), device)


def test_all_rows_in_one_chunk(device: str) -> None:
    machine = check(of_one_chunk, (7, 16, 3), device)
    with pytest.raises(ValueError, match=r"// 16 == 1, but inputs_0.shape.1. is 17"):
        run(machine, [torch.randn(2, 17, 8)], device)


def test_the_size_of_a_chunk_is_a_result() -> None:
    def sizes(x: Any) -> Any:
        return of_chunks(x), *cut(x, 4).shape[1:3]

    program = export(sizes, [torch.randn(2, 9, 8)], [{0: Dim.AUTO, 1: Dim.AUTO}])
    machine = compile_for(from_exported_program(program))
    _, *found = machine["main"](to_tvm(torch.randn(3, 14, 8)))
    assert [int(each) for each in found] == [4, 4]


def test_quotients_of_products_are_cancelled() -> None:
    n, m = (tirx.Var(name, "int64") for name in "nm")
    for left, right, expected in (
        (n * m * 4, n * 2, m * 2),
        (n * m * 2, m * 4, n // 2),
        (n * 6, m * 4, n * 3 // (m * 2)),
        (n * (m + 1), m + 1, n),
        (n * n, n, n),
        (n, n * 2, 1 // tirx.IntImm("int64", 2)),
        (n + m, n, (n + m) // n),
        (12, n * 8, 3 // (n * 2)),
        (7, 2, 3),
    ):
        assert same_size(whole_quotient(left, right), expected), f"{left} // {right}"
