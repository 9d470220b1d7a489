"""Reductions of a few rows on a GPU, where a thread accesses neighbours in each row together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tvm  # noqa: E402
from cuda_cases import cuda_target  # noqa: E402
from harness import at_its_address, device_of  # noqa: E402
from machine_code import cuda, needs_nvrtc, ptx  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch_harness import check, compile_for, export, through_tvm  # noqa: E402
from tvm import te, tirx  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

import tvm_scatter  # noqa: E402
from tvm_scatter.schedules.gpu import ShortReductions  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

FEW = [{0: Dim.AUTO}]


def bases(x: Any, index: Any, relation: Any, shares: Any) -> Any:
    """The rows of each basis at an index, of which an edge has a share by its relation."""
    return (x[index] * shares[relation][..., None]).sum(1)


def test_literal_cases() -> None:
    x = torch.arange(2 * 3 * 4.0).reshape(2, 3, 4)
    given = (
        x,
        torch.tensor([1, 0, -1]),
        torch.tensor([0, 1, 1]),
        torch.tensor([[1.0, 0, 0], [1, 2, -1]]),
    )
    [found] = through_tvm(bases, given, device="cuda")
    assert found.tolist() == [[12, 13, 14, 15], [0, 2, 4, 6], [24, 26, 28, 30]]


def reductions(x: Any, index: Any, axis: int) -> Iterator[Any]:
    """What PyTorch reduces of rows at an index, with something computed before and after."""
    rows, after = x[index], axis + 1
    yield from (rows.sum(after), rows.amax(after, True), -rows.amin(after), rows.prod(after))
    yield from (rows.sum(after) * x[0].sum(axis), (x > 0).sum(axis), x.sum(axis, True) - x)
    if x.dtype.is_floating_point:
        yield from (rows.relu().mean(after), rows.sum(after).exp() + 1, x.square().mean(axis))
    yield from (rows.argmax(after), rows.sum(after).transpose(0, -1), x.any(axis))


@pytest.mark.parametrize("unknown", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((5, 2, 4), 1), ((5, 8, 12), 1), ((4, 9, 8), 1), ((5, 3, 2, 16), 1), ((5, 4, 3, 6), 2)],
    ids=str,
)
@pytest.mark.turns(5)
def test_reductions(shape: Sequence[int], axis: int, unknown: bool) -> None:
    generator = torch.Generator().manual_seed(sum(shape))
    x = torch.randint(-2, 3, shape, generator=generator)
    index = torch.tensor([4, 0, -1, 2, 2, 1, 3]) % shape[0] - 1
    dynamic = [*3 * FEW, *FEW] if unknown else None

    def every(*tensors: Any) -> Sequence[Any]:
        *given, index = tensors
        return [each for x in given for each in reductions(x, index, axis)]

    check(every, x.float(), x.half(), x.int(), index, dynamic=dynamic, device="cuda")


@pytest.mark.parametrize("unknown", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.turns(2)
def test_rows_with_shares(dtype: Any, unknown: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    x, shares = (
        torch.randn(shape, generator=generator).to(dtype) for shape in ((9, 4, 64), (3, 4))
    )
    index = torch.randint(-9, 9, (300,), generator=generator)
    relation = torch.randint(-3, 3, (300,), generator=generator)
    dynamic = [{0: Dim.AUTO}] * 4 if unknown else None
    check(bases, x, index, relation, shares, dynamic=dynamic, device="cuda")


def test_narrow_floats_are_added_in_single_precision() -> None:
    """Each number beyond the first would be lost in bfloat16."""
    x = torch.ones(1, 8, 8, dtype=torch.bfloat16)
    x[0, 0] = 256
    [found] = through_tvm(lambda x: x.sum(1), [x], device="cuda")
    # 263 rounded to eight bits.
    assert (found == 264).all()


def test_sums_of_negative_zeros_begin_with_zero() -> None:
    x = torch.full((3, 2, 4), -0.0)
    together, alone = through_tvm(lambda x: (x.sum(1), x[..., :3].sum(1)), [x], device="cuda")
    assert together.signbit().sum() == alone.signbit().sum() == 0


def test_what_is_no_number_is_kept() -> None:
    x = torch.tensor([[float("nan"), 1, float("inf"), 2], [1, 2, -float("inf"), 3]])[None]
    check(lambda x: (x.sum(1), x.prod(1), x.mean(1) + 1), x, device="cuda")


def test_a_bad_index_reads_zero() -> None:
    x = torch.ones(3, 2, 4)
    index = torch.tensor([0, 3, -4, 2])
    mod = from_exported_program(export(lambda x, index: x[index].sum(1), [x, index % 3]))
    with tvm_scatter.options(bounds="drop"):
        machine = compile_for(mod, "cuda")
    given = [tvm.runtime.tensor(each.numpy(), device_of("cuda")) for each in (x, index)]
    result = machine["main"](*given)
    found = (result if isinstance(result, tvm.runtime.Tensor) else result[0]).numpy()
    np.testing.assert_array_equal(found, np.array([[2], [0], [0], [2]]) * np.ones(4))


@pytest.mark.parametrize("shift", [1, 2, 4])
def test_tensors_may_begin_anywhere(shift: int) -> None:
    """Between two vectors, neighbours are read one by one."""
    machine = compile_for(
        from_exported_program(export(lambda x: x.sum(1) * 2, [torch.ones(50, 4, 8)])), "cuda"
    )
    x = np.arange(1600, dtype="float32").reshape(50, 4, 8)
    whole = np.concatenate([np.full(shift, np.nan, "float32"), x.reshape(-1)])
    buffer = tvm.runtime.tensor(whole, device_of("cuda"))
    result = machine["main"](at_its_address(buffer._create_view(x.shape, "float32", 4 * shift)))
    found = result if isinstance(result, tvm.runtime.Tensor) else result[0]
    np.testing.assert_array_equal(found.numpy(), x.sum(1) * 2)


def test_what_is_read_by_a_result() -> None:
    """An element that a sum addresses, or whose sign decides what is read."""

    def some(x: Any, table: Any) -> Sequence[Any]:
        total = x.sum(1)
        rows = table[total % 5]
        return rows, torch.where(total > 3, rows, 0.0), table[total % 5] * total

    x = torch.randint(0, 3, (7, 4, 8), generator=torch.Generator().manual_seed(0))
    check(some, x, torch.arange(5.0) + 1, device="cuda")


def kernels(function: Any, *inputs: Any, dynamic: Any = None) -> str:
    return cuda(from_exported_program(export(function, inputs, dynamic)))


@pytest.mark.parametrize("unknown", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize(
    ("rows", "width", "dtype", "vector"),
    [
        (4, 64, torch.float32, "float4"),
        (8, 8, torch.float16, "uint4"),
        (2, 6, torch.float32, "float2"),
        (3, 4, torch.float64, "double2"),
    ],
)
@pytest.mark.turns(2)
def test_neighbours_are_read_together(
    rows: int, width: int, dtype: Any, vector: str, unknown: bool
) -> None:
    x, index = torch.ones(1000, rows, width, dtype=dtype), torch.zeros(4000, dtype=torch.int64)
    relation, shares = index + 1, torch.ones(7, rows, dtype=dtype)
    dynamic = [{0: Dim.AUTO}] * 4 if unknown else None
    found = kernels(bases, x, index, relation, shares, dynamic=dynamic)
    reads = re.findall(rf"= \*\({vector}\*\)\(\w+_ptr\w* \+ ", found)
    assert len(reads) >= rows


def test_rows_are_read_together_beside_a_number_for_each() -> None:
    """Both are read by index; the number is read once for all elements of an access."""

    def weighed(x: Any, index: Any, relation: Any, weight: Any) -> Any:
        return x[index] * weight[relation][:, None]

    index = torch.tensor([2, 0, -1, 1] * 1000)
    given = torch.randn(3, 64), index, index % 2 - 1, torch.tensor([1.0, -2])
    check(weighed, *given, device="cuda")
    assert re.search(r"= \*\(float4\*\)\(\w+_ptr\w* \+ ", kernels(weighed, *given))


@pytest.mark.parametrize(
    ("shape", "axis"), [((1000, 9, 64), 1), ((1000, 4, 3), 1), ((1000, 64, 4), 2), ((4, 1000), 1)]
)
def test_others_are_not(shape: Sequence[int], axis: int) -> None:
    """Many rows, rows that no vector divides, and elements of one row."""
    found = kernels(lambda x: (x * 2).sum(axis), torch.ones(shape)).split('extern "C"')[-1]
    assert "tvm_scatter_is_aligned" not in found or axis == len(shape) - 1


def scheduled(after: Any, dtype: str) -> Any:
    """What a rule makes of sums of four rows, given what is computed of a sum and a table."""
    x, table = te.placeholder((1000, 4, 64), dtype, "x"), te.placeholder((9, 64), dtype, "table")
    row = te.reduce_axis((0, 4), "row")
    total = te.compute((1000, 64), lambda i, j: te.sum(x[i, row, j], row), "total")
    result = te.compute((1000, 64), lambda i, j: after(total[i, j], table, j), "result")
    function = te.create_prim_func([x, table, result])
    return ShortReductions().apply(function, cuda_target("sm_90"), False).mod["main"]


def test_nothing_is_kept_between_a_reduction_and_what_follows() -> None:
    found = scheduled(lambda total, table, j: total * total / table[1, j], "float32")
    assert not found.body.block.alloc_buffers
    assert "vectorized" in found.script()


@pytest.mark.parametrize(
    "after",
    [
        lambda total, table, j: table[total, j],
        lambda total, table, j: tirx.if_then_else(total > 1, table[j % 9 + 1, 0], 0),
    ],
)
def test_what_waits_for_a_result_is_read_behind_it(after: Any) -> None:
    assert "vectorized" not in scheduled(after, "int32").script()


@needs_nvrtc
def test_the_code_of_shares() -> None:
    """Four rows are on their way together, and nothing is in local memory."""
    x, index = torch.ones(1000, 4, 64), torch.zeros(1_000_000, dtype=torch.int64)
    text = ptx(kernels(bases, x, index, index + 1, torch.ones(7, 4)))
    assert text.count("ld.global.nc.v4.f32") + text.count("ld.global.v4.f32") == 4
    assert text.count("st.global.v4.f32") == 1
    assert "ld.local" not in text and "st.local" not in text
