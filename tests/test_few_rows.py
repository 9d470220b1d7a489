"""Products of a few rows with matrices, transposed or not, on GPUs, against PyTorch."""

from __future__ import annotations

import re
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from machine_code import cuda  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch_harness import assert_same, check, export, through_tvm  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

HALF, BFLOAT, FLOAT = torch.float16, torch.bfloat16, torch.float32
#: Batches, rows, terms and columns, and the type.
SIZES: tuple[tuple[tuple[int, ...], int, int, int, Any], ...] = (
    ((), 1, 64, 8, FLOAT),
    ((), 8, 65, 128, FLOAT),
    ((3,), 4, 200, 24, HALF),
    ((2, 3), 1, 130, 128, HALF),
    ((2,), 2, 64, 16, BFLOAT),
    ((2,), 8, 100, 264, HALF),
    ((5,), 3, 257, 48, FLOAT),
    ((2,), 9, 64, 16, FLOAT),
    ((2,), 4, 64, 7, HALF),
)


def numbers(*shape: int, dtype: Any = FLOAT) -> Any:
    given = torch.Generator().manual_seed(sum(shape))
    return (torch.randn(*shape, generator=given) / 8).to(dtype)


def product(rows: Any, matrix: Any) -> Any:
    return rows @ matrix


def of_transposed(rows: Any, matrix: Any) -> Any:
    return rows @ matrix.mT


def followed(rows: Any, matrix: Any) -> Any:
    found = rows @ matrix
    return (found * 2 + 1).relu(), found.abs()


@pytest.mark.turns(3)
def test_by_eye(device: str) -> None:
    rows = torch.tensor([[1.0, 0.0] * 32, [0.0, 2.0] * 32])
    matrix = torch.arange(64.0)[:, None] + torch.arange(8.0)
    found = through_tvm(product, [rows, matrix], device=device)
    even, odd = sum(range(0, 64, 2)), 2 * sum(range(1, 64, 2))
    wanted = [[even + 32 * column for column in range(8)], [odd + 64 * c for c in range(8)]]
    assert_same(found[0], torch.tensor(wanted, dtype=FLOAT))


@pytest.mark.parametrize("unknown", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize(
    "share", [3, pytest.param(1, marks=pytest.mark.exhaustive)], ids=["some", "all"]
)
def test_sizes(unknown: bool, share: int) -> None:
    """A third of the sizes are known and another third unknown; or all of them both."""
    given: list[Any] = []
    shapes: list[Any] = []
    for batch, rows, terms, columns, dtype in SIZES[int(unknown) % share :: share]:
        given += [
            numbers(*batch, rows, terms, dtype=dtype),
            numbers(*batch, terms, columns, dtype=dtype),
        ]
        given += [numbers(*batch, columns, terms, dtype=dtype)]
        rank = len(batch)
        shapes += [{rank + 1: Dim.AUTO}, {rank: Dim.AUTO}, {rank + 1: Dim.AUTO}]

    def every(*given: Any) -> Any:
        found: list[Any] = []
        for at in range(0, len(given), 3):
            rows, matrix, turned = given[at : at + 3]
            found += [product(rows, matrix), of_transposed(rows, turned), *followed(rows, matrix)]
        return found

    check(every, *given, dynamic=shapes if unknown else None, device="cuda")


@pytest.mark.gpu
def test_sizes_on_a_gpu() -> None:
    for batch, rows, terms, columns, dtype in SIZES:
        given = [
            numbers(*batch, rows, terms, dtype=dtype),
            numbers(*batch, terms, columns, dtype=dtype),
        ]
        check(product, *given, device="gpu")
        check(followed, *given, device="gpu")
        check(of_transposed, given[0], given[1].mT.contiguous(), device="gpu")


def test_attention_over_pages(device: str) -> None:
    """Heads that share keys and values, which are read by pages."""

    def attended(query: Any, keys: Any, values: Any, table: Any) -> Any:
        key, value = (each[table].flatten(1, 2).transpose(1, 2) for each in (keys, values))
        scores = torch.softmax((query @ key.transpose(2, 3)).float(), -1)
        return scores.to(value.dtype) @ value

    table = torch.tensor([[0, 2, 1, 3], [4, 4, 0, 1]])
    caches = [numbers(5, 16, 2, 32, dtype=HALF) for _ in range(2)]
    check(attended, numbers(2, 2, 4, 32, dtype=HALF), *caches, table, device=device)
    repeated = lambda query, keys, values, table: attended(  # noqa: E731
        query, keys.repeat_interleave(2, 2), values.repeat_interleave(2, 2), table
    )
    check(repeated, numbers(2, 4, 1, 32, dtype=HALF), *caches, table, device=device)


def test_what_is_no_number_stays_apart() -> None:
    """A thread that has no further row of the matrix takes nothing more into its sums."""
    rows, matrix = numbers(2, 300), numbers(300, 8)
    matrix[-1] = 100
    check(product, rows, matrix, device="cuda")
    matrix[-1] = torch.inf
    check(product, rows, matrix, device="cuda")


def kernels(program: Any, *given: Any, **options: Any) -> str:
    return cuda(from_exported_program(export(program, given)), **options)


def test_reads_vectors() -> None:
    source = kernels(product, numbers(3, 4, 256, dtype=HALF), numbers(3, 256, 64, dtype=HALF))
    assert "uint4" in source and "__shfl_down_sync" in source


def test_a_transposed_cache_is_read_as_it_lies() -> None:
    given = numbers(3, 4, 128, dtype=HALF), numbers(3, 256, 128, dtype=HALF)
    names = re.findall(r"__launch_bounds__\(\d+\) (\w+)\(", kernels(of_transposed, *given))
    assert any("multiply_sum" in name for name in names), names
    assert not any("matmul" in name for name in names), names


def test_pages_are_moved_once() -> None:
    def scores(query: Any, keys: Any, table: Any) -> Any:
        return query @ keys[table].flatten(1, 2).transpose(1, 2).transpose(2, 3)

    given = numbers(2, 2, 4, 32, dtype=HALF), numbers(5, 16, 2, 32, dtype=HALF)
    source = kernels(scores, *given, torch.zeros(2, 4, dtype=torch.long))
    assert "read_and_moved_kernel" in source
    assert "reshape_transpose" not in source
