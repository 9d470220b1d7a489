"""Functions that transpose, which go through tiles in shared memory on GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from harness import compile_all, in_order, run_all, run_compiled
from machine_code import cuda
from tvm import relax

from tvm_scatter.schedules.gpu import transpose_kernel

RANDOM = np.random.default_rng(0)
Case = tuple[Callable[..., Any], list[np.ndarray[Any, Any]], np.ndarray[Any, Any]]


def emit(expression: Any) -> Any:
    return relax.BlockBuilder.current().emit(expression)


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return RANDOM.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)


def plain(array: np.ndarray[Any, Any], axes: tuple[int, ...], *after: int) -> Case:
    """A transpose, and perhaps another shape."""

    def build(given: Any) -> Any:
        found = relax.op.permute_dims(given, axes)
        return relax.op.reshape(emit(found), after) if after else found

    wanted = array.transpose(axes)
    return build, [array], wanted.reshape(after) if after else wanted


def split_and_joined() -> Case:
    """Heads: rows are split, the parts put into another order, and joined."""
    given = numbers(2, 5, 30, 16)

    def build(given: Any) -> Any:
        parts = emit(relax.op.reshape(given, (10, 30, 16)))
        turned = emit(relax.op.permute_dims(parts, (0, 2, 1)))
        return relax.op.reshape(turned, (80, 60))

    return build, [given], given.reshape(10, 30, 16).transpose(0, 2, 1).reshape(80, 60)


def summed_before() -> Case:
    """Two tensors that lie the other way, and a number for each of their rows and columns."""
    arrays = [numbers(70, 41), numbers(70, 41), numbers(41), numbers(70, 1)]

    def build(left: Any, right: Any, row: Any, column: Any) -> Any:
        total = emit(relax.op.add(emit(relax.op.add(left, right)), row))
        return relax.op.permute_dims(emit(relax.op.multiply(total, column)))

    left, right, row, column = arrays
    return build, arrays, ((left + right + row) * column).T


def summed_after() -> Case:
    """A tensor that lies the other way, and one that lies as the result does."""
    arrays = [numbers(70, 41), numbers(41, 70), numbers(41, 1)]

    def build(turned: Any, beside: Any, column: Any) -> Any:
        total = emit(relax.op.add(emit(relax.op.permute_dims(turned)), beside))
        return relax.op.multiply(total, column)

    turned, beside, column = arrays
    return build, arrays, (turned.T + beside) * column


def times_a_number() -> Case:
    """A tensor that has no axes is read at one place."""
    arrays = [numbers(33, 40), numbers(1).reshape(())]

    def build(given: Any, factor: Any) -> Any:
        return relax.op.multiply(emit(relax.op.permute_dims(given)), factor)

    return build, arrays, arrays[0].T * arrays[1]


def of_halves() -> Case:
    """What is computed of two elements of an access; all sums are whole in bfloat16."""
    arrays = [numbers(64, 66).astype(ml_dtypes.bfloat16) for _ in range(2)]

    def build(left: Any, right: Any) -> Any:
        return relax.op.permute_dims(emit(relax.op.add(left, right)))

    return build, arrays, (arrays[0] + arrays[1]).T


def of_another_type() -> Case:
    array = numbers(64, 64)

    def build(given: Any) -> Any:
        return relax.op.astype(emit(relax.op.permute_dims(given)), "float16")

    return build, [array], array.T.astype("float16")


def behind(first: int, dtype: str) -> Case:
    """Columns that begin behind some others, so that their words may begin within a word."""
    array = numbers(64, 72, dtype=dtype)

    def build(given: Any) -> Any:
        part = emit(relax.op.strided_slice(given, [1], [first], [first + 64]))
        return relax.op.permute_dims(part)

    return build, [array], array[:, first : first + 64].T


CASES: dict[str, Case] = {
    # One tile is not full, one of four is, and rows end in the middle of a warp's access.
    "small": (plain(numbers(33, 9), (1, 0))),
    "whole_tiles": plain(numbers(64, 96), (1, 0)),
    "awkward": plain(numbers(3, 101, 67), (0, 2, 1)),
    "axes_merge": plain(numbers(3, 5, 40), (2, 0, 1)),
    "to_the_front": plain(numbers(3, 40, 6, 7), (0, 2, 3, 1)),
    "reversed": plain(numbers(9, 2, 3, 33), (3, 2, 1, 0)),
    "two_batches": plain(numbers(2, 9, 3, 33), (0, 2, 3, 1)),
    "shaped": plain(numbers(40, 64), (1, 0), 64, 5, 8),
    "split_and_joined": split_and_joined(),
    "summed_before": summed_before(),
    "summed_after": summed_after(),
    "times_a_number": times_a_number(),
    "of_halves": of_halves(),
    "of_another_type": of_another_type(),
    **{f"behind_{first}_halves": behind(first, "float16") for first in (1, 2, 3)},
    **{f"behind_{first}_bytes": behind(first, "int8") for first in (1, 4, 5)},
    **{
        f"{dtype}_{rows}_{columns}": plain(numbers(rows, columns, dtype=dtype), (1, 0))
        for dtype, sizes in {
            "float16": ((64, 128), (66, 130), (65, 66)),
            "int8": ((128, 64), (132, 68), (130, 68)),
            "uint8": ((128, 128),),
            "bool": ((40, 50),),
            "float64": ((33, 40),),
            "int64": ((64, 32),),
        }.items()
        for rows, columns in sizes
    },
}


def check(cases: dict[str, Case], on: str, symbolic: bool | tuple[int, ...] = False) -> None:
    programs = {name: (build, arrays) for name, (build, arrays, _) in cases.items()}
    compare(cases, run_all(programs, on, symbolic))


def compare(cases: dict[str, Case], found: dict[str, Any]) -> None:
    for name, (_, _, wanted) in cases.items():
        np.testing.assert_array_equal(found[name], wanted, err_msg=name)
        assert found[name].dtype == wanted.dtype


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The forms of the kernels that are made."""
    made: list[Any] = []
    body = transpose_kernel.TransposeKernel.body

    def counting(kernel: Any) -> Any:
        made.append(kernel.form)
        return body(kernel)

    monkeypatch.setattr(transpose_kernel.TransposeKernel, "body", counting)
    yield made


def test_each_kind(on_cuda: str, counted: list[Any]) -> None:
    programs = {name: (build, arrays) for name, (build, arrays, _) in CASES.items()}
    machine = compile_all(programs, on_cuda)
    for order in ("forward", "mixed"):
        with in_order(order):
            compare(CASES, run_compiled(machine, programs, on_cuda))
    assert len(counted) == len(CASES), "each is scheduled so"
    assert {form.lanes for form in counted} == {1, 2, 4}


def test_larger_tiles(on_cuda: str, monkeypatch: pytest.MonkeyPatch, counted: list[Any]) -> None:
    monkeypatch.setattr(transpose_kernel, "_ENOUGH_TILES", 0)
    cases = {
        "both": plain(numbers(130, 70), (1, 0)),
        "rows": plain(numbers(130, 30), (1, 0)),
        "columns": plain(numbers(30, 130), (1, 0)),
        "wide": plain(numbers(130, 70, dtype="float64"), (1, 0)),
        "halves": plain(numbers(260, 132, dtype="float16"), (1, 0)),
    }
    check(cases, on_cuda)
    assert {(form.rows, form.columns) for form in counted} >= {(64, 64), (64, 32), (32, 64)}


def test_symbolic_sizes(on_cuda: str, counted: list[Any]) -> None:
    names = ("small", "awkward", "axes_merge", "to_the_front")
    check({name: CASES[name] for name in names}, on_cuda, symbolic=True)
    assert len(counted) == len(names)


def test_a_size_that_is_a_product(on_cuda: str, counted: list[Any]) -> None:
    """The pixels of an image as rows, where its height and width are known at run time only."""
    image = numbers(9, 5, 13)

    def build(given: Any) -> Any:
        channels, height, width = given.ty.shape
        lines = emit(relax.op.reshape(given, (channels, height * width)))
        return relax.op.permute_dims(lines)

    check({"image": (build, [image], image.reshape(9, 65).T)}, on_cuda, (5, 13))
    assert counted


def module(shape: tuple[int, ...], axes: tuple[int, ...]) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    given = relax.Var("given", relax.TensorType(shape, "float32"))
    with builder.function("main", [given]):
        with builder.dataflow():
            output = builder.emit_output(relax.op.permute_dims(given, axes))
        builder.emit_func_output(output)
    return builder.get()


def is_tiled(mod: tvm.IRModule, **options: Any) -> bool:
    return "tile_ptr" in cuda(mod, **options)


def long_expression(times: int) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    given = relax.Var("given", relax.TensorType((100, 100), "float32"))
    with builder.function("main", [given]):
        with builder.dataflow():
            found = given
            for _ in range(times):
                found = builder.emit(relax.op.add(relax.op.multiply(found, given), given))
            output = builder.emit_output(relax.op.permute_dims(found))
        builder.emit_func_output(output)
    return builder.get()


def test_which_are() -> None:
    assert is_tiled(long_expression(1))
    assert not is_tiled(long_expression(100)), "a thread would compute four of these"
    assert is_tiled(module((100, 100), (1, 0)))
    assert not is_tiled(module((100, 100), (1, 0)), transposes=False)
    assert not is_tiled(module((100, 5, 100), (1, 0, 2))), "rows stay rows"
    assert not is_tiled(module((1000, 3), (1, 0))), "three threads of a warp would read"
