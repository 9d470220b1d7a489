"""Logarithms of softmaxes of long rows that only sums and single elements are read of."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from machine_code import cuda  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch_harness import check, compile_for, export, run, through_tvm  # noqa: E402
from tvm import relax  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

WIDTH = 1500


def readers(x: Any, label: Any) -> Sequence[Any]:
    """What reads elements of a softmax, or reduces its rows."""
    y, doubled = x.log_softmax(-1), (2 * x).log_softmax(-1)
    return (
        functional.cross_entropy(x, label, label_smoothing=0.1, ignore_index=3, reduction="none"),
        *(functional.nll_loss(y, label, reduction="none"), y.sum(-1), y.sum(-1, True)),
        *(y.mean(-1), y.amax(-1), (doubled * x).sum(-1), doubled.sum(-1)),
        doubled.gather(1, torch.stack([label, label.flip(0)], 1)),
    )


def logits(rows: int, width: int = WIDTH) -> Any:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(0)) * 4


def labels(rows: int, width: int = WIDTH) -> Any:
    return torch.randint(0, width, (rows,), generator=torch.Generator().manual_seed(1))


@pytest.mark.each_device
def test_literal_cases(device: str) -> None:
    def some(x: Any, label: Any) -> Sequence[Any]:
        y = x.log_softmax(-1)
        return y.gather(1, label[:, None]), y.sum(-1)

    # Of 2000 equal logits each has one part in 2000. A logit that is far greater has everything.
    x, label = torch.full((2, 2000), 3.0), torch.tensor([1999, 0])
    x[1, 0] = 53
    elements, sums = through_tvm(some, [x, label], device=device)
    assert elements.ravel().tolist() == pytest.approx([-math.log(2000), 0])
    assert sums.tolist() == pytest.approx([-2000 * math.log(2000), -1999 * 50], 1e-4)


@pytest.mark.parametrize("unknown", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str
)
@pytest.mark.turns(4)
def test_readers(device: str, dtype: Any, unknown: bool) -> None:
    dynamic = [{0: Dim.AUTO}, {0: Dim.AUTO}] if unknown else None
    check(readers, logits(5).to(dtype), labels(5), dynamic=dynamic, device=device)


@pytest.mark.parametrize("width", [1025, 4096, 4097, 9000])
@pytest.mark.turns(4)
def test_widths(width: int) -> None:
    check(readers, logits(3, width), labels(3, width), device="cuda")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.turns(2)
def test_special_values(dtype: Any) -> None:
    """In any place: each thread of a block has an infinity, or one of them, or none."""
    rows = [[], [(0, -math.inf)], [(WIDTH - 1, math.inf)], [(700, math.nan)], [(0, -1e9)]]
    rows += [[(511, math.inf), (512, -math.inf)], [(3, 3e38), (515, -3e38)], [(3, 1e4)]]
    x = logits(len(rows) + 4).to(dtype)
    for row, places in enumerate(rows):
        for place, number in places:
            x[row, place] = number
    x[-4], x[-3], x[-2] = -math.inf, math.inf, math.nan
    x[-1] += 1000
    check(readers, x, labels(len(x)), device="cuda")


def test_no_rows() -> None:
    check(readers, logits(0), labels(0), dynamic=[{0: Dim.AUTO}] * 2, device="cuda")


def test_more_axes() -> None:
    def function(x: Any, index: Any) -> Sequence[Any]:
        y = x.log_softmax(-1)
        return y.gather(-1, index), y.sum((1, 2)), y.sum((-1,))

    x, index = logits(6).reshape(2, 3, WIDTH), labels(24).reshape(2, 3, 4)
    check(function, x, index, dynamic=[{0: Dim.AUTO}] * 2, device="cuda")


def test_rows_of_sizes_that_are_products(caplog: pytest.LogCaptureFixture) -> None:
    def losses(x: Any, label: Any) -> Any:
        flat = functional.cross_entropy(x.flatten(0, 1), label.flatten(), reduction="none")
        return functional.cross_entropy(x.transpose(1, 2), label), flat

    x, label = torch.randn(2, 3, 1100), torch.randint(0, 1100, (2, 3))
    check(losses, x, label, dynamic=[{0: Dim.AUTO, 1: Dim.AUTO}] * 2, device="cuda")
    said = [each.getMessage() for each in caplog.records if each.name == "tvm_scatter"]
    assert not [each for each in said if "ExponentialSums" in each]


def test_a_bad_label_reads_zero() -> None:
    def function(x: Any, label: Any) -> Any:
        return x.log_softmax(-1).gather(1, label[:, None])[:, 0]

    x, label = logits(3), torch.tensor([WIDTH, 5, -1])
    [found] = through_tvm(function, [x, label], device="cuda")
    assert found.tolist() == pytest.approx([0, x.log_softmax(-1)[1, 5].item(), 0], rel=1e-5)


def largest(function: Any, *inputs: Any) -> int:
    """The bytes of the largest tensor that a model takes memory for."""
    machine = compile_for(from_exported_program(export(function, inputs)), "cuda")
    sizes: list[int] = []

    def note(_: Any, name: str, before: bool, __: Any, *of: Any) -> int:
        if before and name == "vm.builtin.alloc_storage":
            sizes.append(int(of[1][0]))
        return 0

    machine.set_instrument(note)
    run(machine, inputs, "cuda")
    return max(sizes)


def smoothed(x: Any, label: Any) -> Any:
    return functional.cross_entropy(x, label, label_smoothing=0.1)


@pytest.mark.parametrize(
    "function",
    [
        smoothed,
        functional.cross_entropy,
        lambda x, label: functional.kl_div(x.log_softmax(-1), x, reduction="none").sum(-1),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.turns(2)
def test_no_kernel_writes_as_much_as_it_reads(function: Any, dtype: Any) -> None:
    rows = 8
    x = logits(rows).to(dtype)
    assert largest(function, x, labels(rows)) < x.nbytes // 100


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.log_softmax(-1),
        lambda x: (y := x.log_softmax(-1), y.sum(-1)),
        lambda x: x.log_softmax(-1) @ x.transpose(0, 1),
        lambda x: x.log_softmax(0).sum(1),
        lambda x: x[:, :1024].log_softmax(-1).sum(-1),
        lambda x: x.log_softmax(-1).sum(0),
        lambda x: x.log_softmax(-1).exp(),
        lambda x: x.log_softmax(-1).gather(1, torch.ones(3, 2, dtype=torch.int64)),
    ],
)
def test_what_needs_it_in_memory_is_left_alone(function: Any) -> None:
    found = cuda(from_exported_program(export(function, [logits(9)])))
    assert "log_softmax" in found
    assert "exponential_sums" not in found


def test_what_is_returned_is_left_alone() -> None:
    """An exporter binds all results to one variable; a function need not."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType([9, WIDTH], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.nn.log_softmax(x))
            total = builder.emit_output(relax.op.sum(y, [1]))
        builder.emit_func_output(relax.Tuple([y, total]))
    assert "exponential_sums" not in cuda(builder.get())


def test_rows_of_16_bits_are_read_as_they_are() -> None:
    def mixed(x: Any, label: Any) -> Any:
        return smoothed(x.float(), label)

    x, label = logits(8).bfloat16(), labels(8)
    check(mixed, x, label, device="cuda")
    assert largest(mixed, x, label) < x.nbytes // 100


def test_a_row_is_read_once() -> None:
    found = cuda(from_exported_program(export(smoothed, [logits(9, 4096), labels(9, 4096)])))
    assert "log_softmax" not in found
    kernel = found.split("exponential_sums_kernel")[-1].split('extern "C"')[0]
    loads = re.findall(r"loaded_ptr\[\d\] = inputs_0_ptr\[", kernel)
    assert len(loads) == kernel.count("inputs_0_ptr[") == 4096 // 512
    assert "for (" not in kernel


def test_the_option_leaves_it_to_tvm() -> None:
    module = from_exported_program(export(smoothed, [logits(9), labels(9)]))
    assert "exponential_sums" not in cuda(module, reductions=False)
