"""Products of matrices whose rows, columns or batches only the run time counts."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from machine_code import cuda  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch_harness import check, export  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

from tvm_scatter.schedules.gpu import bounded_launches, product_axes  # noqa: E402

TYPES = [torch.float32, torch.float16, torch.bfloat16]


def some(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype)


def scheduled_by_tvm(records):
    return [each for each in records if "default schedule" in each.getMessage()]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("times", "count"), [(3, 1), (3, 7), (32, 2), (32, 5)])
def test_rows_that_are_a_multiple_of_an_unknown_size(on_cuda, caplog, times, count, dtype):
    shapes = (times, count, 40), (40, 48), (48,)
    x, weight, more = (some(*shape, dtype=dtype) for shape in shapes)
    dynamic = [{1: Dim.AUTO}, None, None]
    if count == 1:
        # An exported size of one would be known.
        dynamic = None
    check(lambda x, w, y: x @ w + y, x, weight, more, dynamic=dynamic, device="cuda")
    assert not scheduled_by_tvm(caplog.records)


@pytest.mark.parametrize("dtype", TYPES)
def test_rows_of_a_product_of_sizes(on_cuda, caplog, dtype):
    x, weight = some(4, 5, 40, dtype=dtype), some(40, 48, dtype=dtype)
    dynamic = [{0: Dim.AUTO, 1: Dim.AUTO}, None]
    check(lambda x, w: (x @ w, x.mT.relu()), x, weight, dynamic=dynamic, device="cuda")
    assert not scheduled_by_tvm(caplog.records)


def scores(x, y):
    return (x @ y.mT).sigmoid() * 2


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("count", [2, 33, 130])
@pytest.mark.parametrize("together", [False, True])
def test_unknown_rows_and_columns(on_cuda, caplog, count, dtype, together):
    x, y = some(2, 3, count, 32, dtype=dtype), some(2, 3, count, 32, dtype=dtype)
    if together:
        check(lambda x: scores(x, x * 2), x, dynamic=[{2: Dim.AUTO}], device="cuda")
    else:
        axes = {0: Dim.AUTO, 2: Dim.AUTO}
        check(scores, x, y[:, :, 1:], dynamic=[axes, axes], device="cuda")
    assert not scheduled_by_tvm(caplog.records)


@pytest.mark.parametrize("dtype", TYPES)
def test_more_blocks_than_a_launch_has(on_cuda, monkeypatch, dtype):
    """They take turns: here 3 batches and 4 tiles of columns by at most two blocks."""
    monkeypatch.setattr(bounded_launches, "MOST_BLOCKS", 2)
    monkeypatch.setattr(product_axes, "MOST_BLOCKS", 2)
    for shapes in ([(3, 40, 64), (3, 130, 64)], [(3, 40, 64), (3, 520, 64)]):
        x, y = (some(*shape, dtype=dtype) for shape in shapes)
        check(scores, x, y, dynamic=[{1: Dim.AUTO}, {1: Dim.AUTO}], device="cuda")
        check(scores, x, y, dynamic=[{1: Dim.AUTO}, None], device="cuda")


@pytest.mark.parametrize("dtype", TYPES)
def test_blocks_divide_nothing(dtype):
    """A remainder of 64 bits takes longer than a row of the tile."""
    x = torch.empty(16, 50, 128, dtype=dtype)
    mod = from_exported_program(export(lambda x: x @ x.mT, [x], [{1: Dim.AUTO}]))
    _, *kernels = cuda(mod).split('extern "C" __global__ void ')
    [kernel] = [each for each in kernels if "{" in each and "matmul" in each[: each.index("(", 60)]]
    assert " % " not in kernel
