"""Products of single rows with matrices that are read by index."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from cuda_cases import cuda_target  # noqa: E402
from machine_code import cuda  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch_harness import check, export  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

import tvm_scatter  # noqa: E402

TYPES = [torch.float32, torch.float16, torch.bfloat16]


def up(x, chosen, table):
    """Each token by the matrices that it chose."""
    return torch.einsum("ti,taoi->tao", x, table[chosen])


def down(rows, chosen, table):
    return torch.einsum("tao,taio->tai", rows, table[chosen])


def both(x, chosen, first, second):
    inner = torch.nn.functional.silu(up(x, chosen, first))
    return down(inner, chosen, second) * 2


def batched(x, chosen, table):
    return torch.bmm(x[:, None], table[chosen].mT)[:, 0]


def inputs(dtype, count=3, inner=5, wide=24):
    x = torch.randn(count, wide).to(dtype)
    first, second = (torch.randn(4, *each).to(dtype) for each in ((inner, wide), (wide, inner)))
    return x, torch.randint(0, 4, (count, 2)), first, second


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize(
    ("count", "inner", "wide"), [(3, 5, 24), (2, 1, 1), (2, 8, 64), (7, 3, 33)]
)
def test_mixture_of_few_tokens(on_cuda, dtype, unknown, count, inner, wide):
    rows = {0: Dim.AUTO}
    dynamic = [rows, rows, None, None] if unknown else None
    given = inputs(dtype, count, inner, wide)
    check(both, *given, dynamic=dynamic, device="cuda")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("count", [0, 1, 6])
def test_one_matrix_for_each_row(on_cuda, dtype, count):
    x, chosen, table, _ = inputs(dtype, count)
    check(batched, x, chosen[:, 0], table, device="cuda")


def test_indices_that_count_from_the_end(on_cuda):
    x, chosen, table, _ = inputs(torch.float32)
    check(up, x, chosen - 4, table, device="cuda")


@pytest.mark.parametrize("unknown", [False, True])
def test_weights_are_read_where_they_lie(unknown):
    rows = {0: Dim.AUTO}
    dynamic = [rows, rows, None, None] if unknown else None
    given = inputs(torch.bfloat16, 4, 32, 64)
    mod = from_exported_program(export(both, given, dynamic))
    said = str(tvm_scatter.explain(mod, cuda_target("sm_90")))
    assert said.count("is a sum along the rows of") == 2
    assert said.count("computes its rows itself: ") == 2
    kernels = [each.split("(")[0] for each in cuda(mod).split("__launch_bounds__")[1:]]
    assert not any("index" in each or "matmul" in each for each in kernels)
    sums = said[said.rindex("computes its rows itself") :].split("\n")[0]
    assert "sigmoid" not in sums, "each column would compute all terms of a row"
    mod = from_exported_program(export(both, given, dynamic))
    with tvm_scatter.options(products=False):
        assert "is a sum along" not in str(tvm_scatter.explain(mod, cuda_target("sm_90")))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, chosen, table: torch.einsum("ti,taio->tao", x, table[chosen]),
        lambda x, chosen, table: x @ table[chosen[0, 0]],
        lambda x, chosen, table: torch.einsum("si,sajo->saijo", x, table[chosen]),
    ],
    ids=["rows are terms", "rows share a matrix", "nothing is summed"],
)
def test_other_products(on_cuda, function):
    x, chosen, _, table = inputs(torch.float32)
    check(function, x, chosen, table, device="cuda")


def test_columns_in_another_order(on_cuda):
    """They are no axes of the weights one after the other, and stay a product."""

    def product(x, chosen, table):
        columns = table[chosen].permute(0, 4, 3, 2, 1).flatten(2)
        return torch.bmm(x[:, None], columns)

    x, table = torch.randn(3, 24), torch.randn(4, 2, 5, 3, 24)
    check(product, x, torch.tensor([1, 0, 3]), table, device="cuda")


@pytest.mark.parametrize("wide", [0, 1])
def test_rows_of_no_terms_or_one(on_cuda, wide):
    given = torch.ones(3, wide), torch.tensor([[1, 2], [0, 3], [3, 1]]), torch.ones(4, 5, wide)
    check(up, *given, device="cuda")
