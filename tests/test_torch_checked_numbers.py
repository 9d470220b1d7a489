"""Numbers in tensors that PyTorch refuses when it runs: one clear error under ``raise``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.export import Dim  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch_harness import assert_same, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

import tvm_scatter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

ROWS = torch.arange(12.0).reshape(4, 3)
BATCH = torch.arange(12.0).reshape(2, 6)
PLANES = torch.arange(8.0).reshape(1, 2, 2, 2)
WORDS = torch.tensor([0, 1, 3, 3, 2])


def segments(**how: Any) -> Callable[..., Any]:
    def reduce(x: Any, limits: Any) -> Any:
        named = {"offsets" if how.get("offsets") else "lengths": limits}
        unsafe = how.get("unsafe", False)
        return torch.segment_reduce(x, "sum", axis=limits.ndim - 1, unsafe=unsafe, **named)

    return reduce


def unpooled(pool: Any) -> Callable[..., Any]:
    return lambda x, at: pool(x, at, 2)


def positions(*numbers: int) -> Any:
    return torch.tensor(numbers).reshape(1, 2, 2, 2)


#: A function of data and of numbers; the data; numbers that are fine, and others that are not, with
#: what is said of them.
CASES: dict[str, tuple[Callable[..., Any], Any, Any, list[tuple[Any, str]]]] = {
    "repeats": (
        lambda x, n: torch.repeat_interleave(x, n, 0),
        *(ROWS, torch.tensor([1, 0, 3, 2])),
        [(torch.tensor([1, 0, 3, -2]), "repeats is -2 at position (3); it must not be negative")],
    ),
    "repeats of a known number": (
        lambda x, n: torch.repeat_interleave(x, n, 0, output_size=5),
        *(ROWS, torch.tensor([1, 0, 3, 1], dtype=torch.int32)),
        [
            (torch.tensor([-1, 1, 4, 1]), "repeats is -1 at position (0); it must not be neg"),
            (torch.tensor([1, 0, 3, 0]), "the sum of repeats (output_size) is 4; it must be 5"),
            (torch.tensor([9, 0, 3, 0]), "the sum of repeats (output_size) is 12; it must be 5"),
        ],
    ),
    "lengths": (
        segments(),
        *(BATCH[0], torch.tensor([2, 0, 4])),
        [
            (torch.tensor([3, -1, 4]), "a length is -1 at position (1); it must not be negative"),
            (torch.tensor([3, 0, 4]), "the sum of lengths along dim 0 is 7; it must be 6"),
            (torch.tensor([0, 0, 0]), "the sum of lengths along dim 0 is 0; it must be 6"),
        ],
    ),
    "lengths of a batch": (
        segments(),
        *(BATCH, torch.tensor([[2, 4], [6, 0]])),
        [(torch.tensor([[2, 4], [2, 3]]), "along dim 1 is 5 at position (1); it must be 6")],
    ),
    "unsafe lengths": (
        segments(unsafe=True),
        *(BATCH, torch.tensor([[2, 3], [6, 0]])),
        [
            (torch.tensor([[2, 4], [2, 5]]), "is 7 at position (1); it must be at most 6"),
            (torch.tensor([[2, 4], [6, -1]]), "a length is -1 at position (1, 1)"),
        ],
    ),
    "offsets": (
        segments(offsets=True),
        *(BATCH, torch.tensor([[0, 2, 6], [1, 1, 5]])),
        [
            (torch.tensor([[0, 2, 6], [0, 4, 3]]), "an offset is 3 at position (1, 2); it must n"),
            (torch.tensor([[0, 2, 7], [0, 4, 6]]), "segment_reduce: index 7"),
            (torch.tensor([[0, 2, 6], [-1, 4, 6]]), "segment_reduce: index -1"),
        ],
    ),
    "offsets of the first axis": (
        segments(offsets=True),
        *(BATCH[0], torch.tensor([1, 2, 6])),
        [
            (torch.tensor([0, 4, 3]), "an offset is 3 at position (2); it must not"),
            (torch.tensor([0, 2, 7]), "the last offset is 7; it must be at most 6"),
            (torch.tensor([-1, 2, 6]), "an offset is -1 at position (0); it must not be negative"),
        ],
    ),
    "offsets of bags": (
        lambda x, offsets: functional.embedding_bag(WORDS, x, offsets, include_last_offset=True),
        *(ROWS, torch.tensor([0, 1, 4])),
        [(torch.tensor([0, 1, 6]), "the last offset is 6; it must be at most 5")],
    ),
    **{
        name: (unpooled(pool), *of, [(bad, f"max_unpool{rank}d: index {n}") for bad, n in wrong])
        for name, pool, rank, of, wrong in (
            (
                "max_unpool1d",
                *(functional.max_unpool1d, 2),
                (PLANES[0], positions(0, 3, 1, 2, 3, 0, 2, 1)[0]),
                [(positions(0, 3, 1, -1, 3, 0, 2, 1)[0], -1)],
            ),
            (
                "max_unpool2d",
                *(functional.max_unpool2d, 2),
                (PLANES, positions(0, 3, 15, 9, 3, 0, 2, 15)),
                # Neither the last position, nor one of the next plane.
                [(positions(0, 3, 15, 9, -1, 0, 2, 15), -1), (positions(0, 16, *range(6)), 16)],
            ),
            (
                "max_unpool3d",
                *(functional.max_unpool3d, 3),
                (PLANES, positions(0, 3, 31, 9, 16, 63, 2, 15)),
                [(positions(0, 3, 15, 9, 4, 5, -64, 14), -64)],
            ),
        )
    },
}
#: Of these offsets fall that an order is made of.
FALLING = ("a length is -1 at position (1); ", "an offset is 3 at position (2); ")
#: What PyTorch does not see: it reads or writes out of bounds. Of ``output_size`` some versions do.
UNDEFINED = ("segment_reduce: index", "an offset is -1", "at most", "output_size")


def every(*inputs: Any) -> list[Any]:
    pairs = zip(CASES.values(), inputs[::2], inputs[1::2], strict=True)
    return [function(x, numbers) for (function, *_), x, numbers in pairs]


def wrong() -> Iterator[tuple[str, list[Any], str]]:
    """For each bad tensor of numbers all inputs, and what is said."""
    fine = [tensor for _, *tensors, _ in CASES.values() for tensor in tensors]
    for at, (name, (_, _, good, bad)) in enumerate(CASES.items()):
        for numbers, said in bad:
            inputs = list(fine)
            inputs[2 * at + 1] = numbers.to(good.dtype)
            yield name, inputs, said


def machine_of(device: str, bounds: str) -> Any:
    fine = [tensor for _, *tensors, _ in CASES.values() for tensor in tensors]
    with tvm_scatter.options(bounds=bounds):
        machine = compile_for(from_exported_program(export(every, fine)), device)
    for found, right in zip(run(machine, fine, device), every(*fine), strict=True):
        assert_same(found, right)
    return machine


@pytest.mark.on_cpu
def test_numbers_that_are_refused(device: str) -> None:
    machine = machine_of(device, "raise")
    for name, inputs, said in wrong():
        with pytest.raises((ValueError, IndexError)) as raised:
            run(machine, inputs, device)
        assert said in str(raised.value), name


def test_numbers_that_pytorch_refuses_as_well() -> None:
    for _, inputs, said in wrong():
        if not any(each in said for each in UNDEFINED):
            with pytest.raises(RuntimeError):
                every(*inputs)


@pytest.mark.turns(2)
def test_numbers_that_are_not_checked(device: str) -> None:
    """Nothing is written or read out of bounds. On a CPU offsets that fall are an error."""
    machine = machine_of(device, "drop")
    for _, inputs, said in wrong():
        if device == "llvm" and said.startswith(FALLING):
            with pytest.raises(RuntimeError, match="the offsets of ordering must ascend"):
                run(machine, inputs, device)
        else:
            run(machine, inputs, device)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32], ids=str)
def test_repeats_of_another_type(dtype: Any) -> None:
    repeats = torch.tensor([1, 0, 3, 2]).to(dtype)
    with pytest.raises(NotImplementedError):
        torch.repeat_interleave(ROWS, repeats, 0)
    program = export(lambda x, n: torch.repeat_interleave(x, n, 0, output_size=6), [ROWS, repeats])
    with pytest.raises(tvm_scatter.errors.ScatterError, match="must be of type int32 or int64"):
        from_exported_program(program)


def test_the_last_axis_up_to_a_number_that_is_read() -> None:
    """TVM fails where such an axis is counted from the end, and PyTorch keeps it so."""

    def function(x: Any, numbers: Any) -> Any:
        return torch.ops.aten.slice.Tensor(x, -1, 0, numbers.max().item(), 1)

    given = torch.randn(1, 2, 6), torch.tensor([2, 3])
    built = compile_for(from_exported_program(export(function, given, ({2: Dim.AUTO}, None))))
    for size in (5, 7, 9):
        inputs = torch.randn(1, 2, size), torch.tensor([size - 2, 1])
        assert_same(*run(built, inputs), function(*inputs).contiguous())
