"""Reductions of few elements, and rows that a warp reduces, on a GPU against PyTorch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from machine_code import cuda, needs_nvrtc, ptx  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch_harness import check, export  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

X = torch.tensor([[[1.0, 2], [3, 4], [5, -6]], [[7, 8], [-9, 10], [11, 12]]])


def test_literal_cases() -> None:
    def some(x: Any) -> Sequence[Any]:
        return x.sum(1), x.amax((1, 2)), x.prod(2), x.argmin(1), x.mean((0, 2)), x.norm(dim=1) ** 2

    expected = [
        [[9, 0], [9, 30]],
        [5, 12],
        [[2, 12, -30], [56, -90, 132]],
        [[0, 2], [1, 0]],
        [4.5, 2, 5.5],
        [[35, 56], [251, 308]],
    ]
    for found, by_eye in zip(some(X), expected, strict=True):
        assert found.isclose(torch.tensor(by_eye, dtype=found.dtype)).all()
    check(some, X, device="cuda")


def reductions(x: Any, axes: Sequence[int]) -> Iterator[Any]:
    """What PyTorch reduces along some axes, with something computed before and after."""
    yield from ((x * x + 1).sum(axes), x.amax(axes), -x.amin(axes, True), (x > 0).any(axes[0]))
    if x.dtype.is_floating_point:
        yield from (x.mean(axes, True) - 1, x.relu().sum(axes).to(torch.float64))
    yield from (x.argmax(axes[0]), x.sign().prod(axes[0]).transpose(0, -1))
    yield x + x.sum(axes, True)


@pytest.mark.parametrize("unknown", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((5, 1), (1,)),
        ((2, 17), (1,)),
        ((300, 3), (1,)),
        ((3, 300), (0,)),
        ((7, 4, 33), (1,)),
        ((2, 65, 2), (1,)),
        ((9, 2, 2, 3), (1, 3)),
        ((2, 3, 1, 2, 5), (4, 2)),
        ((2, 1, 1500), (2,)),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64], ids=str)
@pytest.mark.turns(7)
def test_reductions(shape: Sequence[int], axes: Sequence[int], dtype: Any, unknown: bool) -> None:
    x = torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)
    kept = next(at for at in range(len(shape)) if at not in axes)
    dynamic = [{kept: Dim.AUTO}] if unknown else None
    check(lambda x: list(reductions(x, axes)), x, dynamic=dynamic, device="cuda")


def computed_rows(x: Any) -> Sequence[Any]:
    size = x.shape[-1:]
    return (
        *(x.softmax(-1), functional.log_softmax(2 * x, -1), functional.layer_norm(x, size)),
        *(x / x.norm(dim=-1, keepdim=True).clamp(min=1e-3), x.var(-1, correction=0)),
    )


@pytest.mark.parametrize("unknown", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(3, 2), (9, 49), (2, 5, 3, 8), (2, 1, 130), (2, 1100)], ids=str)
@pytest.mark.turns(6)
def test_computed_rows(shape: Sequence[int], dtype: Any, unknown: bool) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    check(computed_rows, x, dynamic=[{0: Dim.AUTO}] if unknown else None, device="cuda")


def test_rows_of_nothing() -> None:
    def none(x: Any, y: Any) -> Sequence[Any]:
        return x.sum(1), x.softmax(-1), y.sum(1), y.prod(1), (y + 1).sum((0, 1)), x.amax(1)

    check(none, torch.ones(0, 3), torch.ones(4, 0), device="cuda")


def one_of_many(x: Any) -> Sequence[Any]:
    """What one element of a row decides, in types of fewer than 32 bits."""
    true, few = x > 0, x.to(torch.int8)
    return (
        *(true.any(1), (~true).all(1), true.sum(1, dtype=torch.bool), true.prod(1).bool()),
        *(few.sum(1, dtype=torch.int8), few.amax(1), few.amin(1), (few * 2 - 1).prod(1)),
        *(x.to(torch.uint8).sum(1, dtype=torch.uint8), few.to(torch.int16).amax(1)),
    )


@pytest.mark.parametrize("shape", [(2, 17), (3, 100), (2, 1030)], ids=str)
@pytest.mark.turns(3)
def test_narrow_results(shape: Sequence[int]) -> None:
    """TVM's exchange of these needs threads that run together, which nobody promises."""
    x = torch.zeros(shape)
    x[0, 5], x[1, -1] = 3, 127
    check(one_of_many, x, device="cuda")


def test_rows_of_one_batch_and_an_unknown_number() -> None:
    x = torch.randn(1, 5, 65)
    check(
        lambda x: (x.amax(-1), x.sum(-1), x.argmax(-1)), x, dynamic=[{1: Dim.AUTO}], device="cuda"
    )


def kernels(function: Any, *inputs: Any, dynamic: Any = None) -> str:
    return cuda(from_exported_program(export(function, inputs, dynamic)))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 2).sum(1),
        lambda x: x.amax(1) + 1,
        lambda x: x.transpose(1, 2).contiguous().prod(2),
        lambda x: functional.max_pool2d(x[None], (2, 2), return_indices=True)[1],
    ],
)
def test_few_elements_are_reduced_by_one_thread(function: Any) -> None:
    found = kernels(function, torch.ones(64, 4, 32), dynamic=[{0: Dim.AUTO}])
    assert "blockIdx" in found
    assert not re.search(r"__shfl|__syncthreads", found.split('extern "C"')[-1])


def test_one_number_is_left_to_others(caplog: pytest.LogCaptureFixture) -> None:
    """No schedule of this package fails, which would be said in the log."""

    def one(x: Any) -> Sequence[Any]:
        return x[0].amax(), (x[0] > 0).sum(), x[:1].amin(1, True), x.sum() / 3, -x[:1].max()

    check(one, torch.randn(5, 3), device="cuda")
    assert not [each.message for each in caplog.records if "Reductions" in each.message]


def bags(x: Any, index: Any, weights: Any) -> Sequence[Any]:
    """Few rows that are read by index, weighed and added up, and their maximum."""
    return (x[index] * weights[..., None]).sum(1), x[index.flip(0)].amax(1)


@pytest.mark.parametrize("unknown", [False, True], ids=["known", "unknown"])
@pytest.mark.turns(2)
def test_rows_are_read_where_few_are_reduced(unknown: bool) -> None:
    dynamic = [None, {0: Dim.AUTO}, {0: Dim.AUTO}] if unknown else None
    index = torch.tensor([[0, 4, -1], [2, 2, -5], [1, 0, 3], [3, 3, 3]])
    given = torch.randn(5, 8), index, torch.randn(4, 3)
    check(bags, *given, dynamic=dynamic, device="cuda")
    found = kernels(lambda *inputs: bags(*inputs)[0], *given, dynamic=dynamic)
    assert len(set(re.findall(r"\w+_kernel\w*(?=\()", found))) == 1


@pytest.mark.parametrize("width", [7, 49, 128, 1024])
def test_a_short_row_is_a_warps(width: int) -> None:
    found = kernels(lambda x: x.softmax(-1), torch.ones(1000, width), dynamic=[{0: Dim.AUTO}])
    assert found.count("__shfl_down_sync") > found.count("__syncthreads") == 0


def test_a_maximum_of_few_long_rows_is_a_blocks() -> None:
    found = kernels(lambda x: x.amax(-1), torch.ones(4, 100_000))
    assert "__launch_bounds__(256)" in found
    assert "__shfl" in found


@needs_nvrtc
def test_keys_behind_a_product_compile() -> None:
    """CUDA has no ``~`` of the vectors that TVM's product computes."""

    def nearest(x: Any) -> Any:
        return (x @ x.transpose(1, 2)).topk(4, -1)[1]

    assert ptx(kernels(nearest, torch.ones(2, 64, 32)))


NORMALISED = {
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]) * 2,
    "softmax": lambda x: (x * 2).softmax(-1),
    "amax": lambda x: x.exp().amax(-1),
}


@pytest.mark.parametrize("name", NORMALISED)
@pytest.mark.parametrize("shape", [(2, 5, 40), (3, 7, 130), (2, 1, 33), (2, 13, 768)])
def test_rows_of_an_unknown_and_an_odd_number(name: str, shape: Sequence[int]) -> None:
    """Rows of several warps of a block would not all be there. So a block has one row."""
    check(NORMALISED[name], torch.randn(*shape), dynamic=[{0: Dim.AUTO}], device="cuda")
    found = kernels(NORMALISED[name], torch.ones(8, *shape[1:]), dynamic=[{0: Dim.AUTO}])
    assert found.count("__shfl_down_sync") > found.count("__syncthreads") == 0
