"""Softmaxes and normalisations that compute the rows they normalise themselves, on a GPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from machine_code import cuda, needs_nvrtc, ptx  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch_harness import assert_same, check, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

import tvm_scatter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def embedded(words: Any, places: Any, token: Any) -> Any:
    """Rows that are read by index, added and normalised."""
    at = torch.arange(token.shape[1], device=token.device)
    return functional.layer_norm(words[token] + places[at], words.shape[1:])


def root_mean_square(x: Any, residual: Any, weight: Any) -> Any:
    """As models of language write it: in single precision, and the type of the weight at last."""
    wide = (x + residual).to(torch.promote_types(x.dtype, torch.float32))
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return weight * (wide * scale).to(x.dtype)


def standardised(x: Any, residual: Any, _weight: Any) -> Any:
    rows = x * 2 + residual
    return (rows - rows.mean(-1, keepdim=True)) / (rows.std(-1, correction=0, keepdim=True) + 1e-3)


#: Functions of two tensors of one shape and of a row, each of which is one kernel.
NORMALISED: dict[str, Callable[..., Any]] = {
    "layer_norm": lambda x, y, w: functional.layer_norm(x + y, w.shape, w, w * 2),
    "rms_norm": lambda x, y, w: functional.rms_norm(functional.gelu(x) + y, w.shape, w),
    "root mean square": root_mean_square,
    "softmax": lambda x, y, w: torch.softmax(x * 0.5 + y, -1),
    "masked softmax": lambda x, y, w: torch.softmax(x.masked_fill(y > 1, -1e4).float(), -1),
    "log_softmax": lambda x, y, w: functional.log_softmax(x - y * w, -1),
    "normalize": lambda x, y, w: functional.normalize(x + y, dim=-1),
    "norm": lambda x, y, w: (x + y) / (x + y).norm(dim=-1, keepdim=True).clamp(min=1e-3),
    "standardised": standardised,
    "product of one number for each row": lambda x, y, w: functional.layer_norm(
        x * y[..., :1].sigmoid(), w.shape
    ),
    "two in a row": lambda x, y, w: functional.layer_norm(torch.softmax(x + y, -1) + y, w.shape),
    "something behind": lambda x, y, w: functional.layer_norm(x + y, w.shape).relu() * w + 1,
}
#: Functions that compute a number for each row, from several reductions or of computed rows.
NUMBERS: dict[str, Callable[..., Any]] = {
    "deviation": lambda x, y, w: (x * y).std(-1, correction=0),
    "mean of squares": lambda x, y, w: ((x - y) * w).pow(2).mean(-1),
    "place of the maximum": lambda x, y, w: (x + y).argmax(-1, keepdim=True),
    "distance from the maximum": lambda x, y, w: (x + y).amax(-1) - (x + y).mean(-1),
    "logarithm of a sum": lambda x, y, w: torch.logsumexp(x.to(y.dtype) - y, -1, keepdim=True),
}
TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def tensors(shape: Sequence[int], dtype: Any = torch.float32) -> Sequence[Any]:
    generator = torch.Generator().manual_seed(sum(shape))
    shapes = (shape, shape, shape[-1:])
    return [torch.randn(each, generator=generator).to(dtype) for each in shapes]


def kernels(function: Any, *inputs: Any, dynamic: Any = None, **options: Any) -> set[str]:
    found = cuda(from_exported_program(export(function, inputs, dynamic)), **options)
    return set(re.findall(r"\w+_kernel\w*(?=\()", found))


def test_literal_cases() -> None:
    words = torch.tensor([[0.0, 1] * 10, [4, 0] * 10])
    places, token = torch.tensor([[1.0, 0] * 10, [0, 5] * 10]), torch.tensor([[1, 0], [0, -1]])
    # Sums are 5 0, 0 6; 1 1, 4 5: each row has two numbers, or one.
    by_eye = torch.tensor([[[1.0, -1], [-1, 1]], [[0, 0], [-1, 1]]]).repeat(1, 1, 10)
    assert embedded(words, places, token).allclose(by_eye, atol=1e-4)
    check(embedded, words, places, token, device="cuda")


@pytest.mark.parametrize("unknown", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(
    "shape", [(3, 1), (4, 2), (9, 17), (2, 5, 33), (1, 130), (0, 40), (2, 1, 1024), (3, 1100)],
    ids=str,
)  # fmt: skip
@pytest.mark.turns(16)
def test_results(shape: Sequence[int], dtype: Any, unknown: bool) -> None:
    def every(*given: Any) -> Sequence[Any]:
        return [function(*given) for function in (*NORMALISED.values(), *NUMBERS.values())]

    axes = {0: Dim.AUTO}
    dynamic = [axes, axes, None] if unknown and shape[0] > 1 else None
    check(every, *tensors(shape, dtype), dynamic=dynamic, device="cuda")


@pytest.mark.parametrize("unknown", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize("name", [*NORMALISED, *NUMBERS])
@pytest.mark.turns(2)
def test_one_kernel(name: str, unknown: bool) -> None:
    axes = {0: Dim.AUTO}
    dynamic = [axes, axes, None] if unknown else None
    function = {**NORMALISED, **NUMBERS}[name]
    assert len(kernels(function, *tensors((64, 48)), dynamic=dynamic)) == 1


@pytest.mark.parametrize("width", [768, 1025, 4096])
@pytest.mark.turns(3)
def test_rows_of_a_warp_and_of_a_block_are_one_kernel(width: int) -> None:
    for name in ("layer_norm", "root mean square"):
        assert len(kernels(NORMALISED[name], *tensors((64, width), torch.float16))) == 1


def several_axes(x: Any, y: Any) -> Any:
    return functional.layer_norm(x + y, x.shape[1:])


@pytest.mark.parametrize("shape", [(3, 5, 9), (2, 4, 64), (2, 3, 2, 7), (2, 33, 40)], ids=str)
@pytest.mark.turns(2)
def test_rows_of_several_axes(shape: Sequence[int]) -> None:
    given = tensors(shape)[:2]
    check(several_axes, *given, device="cuda")
    assert len(kernels(several_axes, *given)) == 1


@pytest.mark.parametrize("unknown", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize("dtype", TYPES[:3], ids=str)
@pytest.mark.turns(2)
def test_rows_that_are_read(dtype: Any, unknown: bool) -> None:
    words, places, _ = tensors((11, 50), dtype)
    token = torch.randint(-11, 11, (3, 7), generator=torch.Generator().manual_seed(1))
    dynamic = [None, None, {0: Dim.AUTO}] if unknown else None
    check(embedded, words, places, token, dynamic=dynamic, device="cuda")
    assert len(kernels(embedded, words, places, token, dynamic=dynamic)) == 1


def test_an_element_is_read_once() -> None:
    found = cuda(from_exported_program(export(NORMALISED["layer_norm"], tensors((64, 48)))))
    body = found[found.rindex("__launch_bounds__") :]
    reads = re.findall(r"operand\d_ptr(?=\[)", body)
    assert len(reads) == 4


@needs_nvrtc
@pytest.mark.parametrize("shape", [(64, 1000), (64, 5000), (64, 6, 50)], ids=str)
@pytest.mark.turns(2)
def test_what_is_kept_is_in_registers(shape: Sequence[int]) -> None:
    given = tensors(shape)[:2]
    assert ".local" not in ptx(cuda(from_exported_program(export(several_axes, given))))


def read_alone(words: Any, token: Any) -> Any:
    return torch.softmax(words[token] * 2, -1)


BAD = torch.tensor([2, 5, -6, 0, 2**40, -5])


def test_a_bad_index_reads_zeros() -> None:
    words = tensors((5, 40))[0]
    good = torch.where((BAD >= -5) & (BAD < 5), BAD, 0)
    module = from_exported_program(export(read_alone, (words, good)))
    [found] = run(compile_for(module, "cuda"), (words, BAD), "cuda")
    expected = torch.where((good == BAD)[:, None], read_alone(words, good), 1 / 40)
    assert_same(found, expected)


def test_a_bad_index_is_said() -> None:
    words, good = tensors((5, 40))[0], torch.tensor([2, 4, -5, 0, 3, 1])
    module = from_exported_program(export(read_alone, (words, good)))
    with tvm_scatter.options(bounds="raise"):
        machine = compile_for(module, "cuda")
    assert_same(run(machine, (words, good), "cuda")[0], read_alone(words, good))
    with pytest.raises(Exception, match="index"):
        run(machine, (words, BAD), "cuda")


def with_another_reader(x: Any, y: Any, w: Any) -> Sequence[Any]:
    """What a block of a transformer normalises, and adds to what comes of it."""
    total = x + y
    return functional.layer_norm(total, w.shape) + total.relu(), total


def behind_a_product(x: Any, y: Any, w: Any) -> Any:
    return functional.layer_norm(x @ y.transpose(0, 1) + w[0], y.shape[:1])


def across(x: Any, y: Any, w: Any) -> Any:
    """Rows that lie across in memory, and a sum that is of columns."""
    return torch.softmax((x + y).transpose(0, 1), -1), (x + y) / (x + y).sum(0, keepdim=True).exp()


@pytest.mark.parametrize("function", [with_another_reader, behind_a_product, across])
def test_others(function: Any) -> None:
    check(function, *tensors((20, 24)), device="cuda")


def test_a_product_keeps_what_it_computes_behind_it() -> None:
    found = kernels(behind_a_product, *tensors((64, 48)))
    assert any("matmul" in name and "add" in name for name in found)
    assert not any("computed_rows" in name for name in found)


def test_without_the_option_nothing_is_put_together() -> None:
    found = kernels(NORMALISED["layer_norm"], *tensors((64, 48)), reductions=False)
    assert not any("computed_rows" in name for name in found)


def test_a_single_row(caplog: Any) -> None:
    def program(x: Any) -> Any:
        whole = functional.layer_norm(x, x.shape)
        return torch.softmax(x, -1), whole, functional.normalize(x * 2, dim=-1), x.repeat(2, 1)

    for width in (40, 1100):
        check(program, *tensors((1, width))[:1], device="cuda")
        check(lambda x: (torch.softmax(x, -1),), *tensors((width,))[:1], device="cuda")
    assert "WarpRows" not in caplog.text
