"""The order of integers along lines, against NumPy's stable sort."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import pytest
import tvm
from cuda_on_cpu import memory_in_use, record, set_memory_limit, status
from harness import compile_all, device_of, orders
from lines_of_integers import Array, any_of, in_order, small
from tvm import relax

from tvm_scatter.strategies.cuda import sort

#: An array, an axis, whether the greatest come first, and the type of places.
Case = tuple[Array, int, bool, str]


def expected(array: Array, axis: int, descending: bool, dtype: str) -> Array:
    return in_order(array, axis, descending).astype(dtype)


def check(cases: Sequence[Case], device: str, symbolic: bool = False) -> None:
    calls: dict[str, tuple[Callable[..., Any], list[Array]]] = {}
    for number, (array, axis, descending, dtype) in enumerate(cases):
        build = partial(relax.op.argsort, axis=axis, descending=descending, dtype=dtype)
        calls[f"case_{number}"] = (build, [array])
    machine = compile_all(calls, device, symbolic=symbolic)
    for _ in orders(device):
        for at, case in zip(calls, cases, strict=True):
            found = machine[at](tvm.runtime.tensor(case[0], device=device_of(device)))
            wanted = expected(*case)
            assert str(found.dtype) == str(wanted.dtype)
            text = f"{case[0].shape} {case[1:]}"
            np.testing.assert_array_equal(found.numpy(), wanted, err_msg=text)


#: Shapes and axes: lines that are counted, kept by a block, and sorted in tiles.
SHAPES = [
    *(((1,), 0), ((2,), 0), ((33, 2), 0), ((1, 300), 1), ((2, 3, 40), 2), ((2, 40, 3), 1)),
    *(((3, 2, 2, 9), -1), ((2, 2, 8, 2, 3), 2), ((300, 3), 0), ((2, 700), 1), ((5, 1), 0)),
    *(((4100,), 0), ((2, 4100), 1), ((4097, 3), 0)),
]
#: Lengths around those that the forms have.
LENGTHS = [256, 257, 513, 1025, 2049, 4096, 4097, 9000]


def test_shapes_and_axes(on_cuda: str) -> None:
    cases = [
        (make(shape, dtype), axis, descending, "int64")
        for shape, axis in SHAPES
        for make, dtype, descending in ((small, "int32", False), (any_of, "int64", True))
    ]
    check(cases, on_cuda)


def test_lengths(on_cuda: str) -> None:
    cases = [
        (any_of((2, length), dtype), 1, dtype == "int64", "int32")
        for length, dtype in zip(LENGTHS, cycle(["int32", "int64"]))
    ]
    check(cases, on_cuda)


def test_unknown_sizes(on_cuda: str) -> None:
    cases: list[Case] = [(small((3, 5)), 1, False, "int32")]
    cases += [(small((900, 3), "int64"), 0, True, "int64")]
    cases += [(any_of((2, 5000)), 1, False, "int64")]
    cases += [(any_of((300, 20), "int64"), 1, False, "int64")]
    check(cases, on_cuda, symbolic=True)


def test_all_are_equal(on_cuda: str) -> None:
    cases: list[Case] = [
        (np.full((3, length), [[5], [5 - 2**31], [2**31 - 1]], "int32"), 1, descending, "int64")
        for length in (7, 300, 4200)
        for descending in (False, True)
    ]
    check([*cases, (np.full((1, 5000), -3, "int64"), 1, False, "int64")], on_cuda)


def test_many_lines_in_tiles(on_cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of a line has one digit, or two."""
    monkeypatch.setattr(sort, "_COUNTED", 1)
    monkeypatch.setattr(sort, "_LONGEST_KEPT", 2)
    check(
        [(small(shape), 1, False, "int32") for shape in ((200, 9), (300, 7), (66_000, 3))], on_cuda
    )


@pytest.mark.exhaustive
def test_many_long_lines(on_cuda: str) -> None:
    check([(small((257, 4097)), 1, False, "int32")], on_cuda)


def test_some_of_a_long_line(device: str) -> None:
    """More than a selection puts in order, so that all are sorted."""
    found = any_of((2, 5000))
    build = partial(relax.op.topk, k=2000, axis=1, ret_type="indices", dtype="int64")
    machine = compile_all({"main": (build, [found])}, device)
    places = machine["main"](tvm.runtime.tensor(found, device=device_of(device))).numpy()
    np.testing.assert_array_equal(places, expected(found, 1, True, "int64")[:, :2000])


@pytest.mark.skipif(not status(), reason="a simulated device counts its memory")
def test_short_lines_of_an_unknown_length_take_no_memory() -> None:
    """Only long ones are sorted by way of memory, which is some times their own."""
    array = small((200_000, 3), "int64")
    build = partial(relax.op.argsort, axis=1, dtype="int64")
    machine = compile_all({"main": (build, [array])}, "cuda", symbolic=True)
    given = tvm.runtime.tensor(array, device=device_of("cuda"))
    set_memory_limit(memory_in_use() + 2 * array.nbytes)
    try:
        found = machine["main"](given).numpy()
    finally:
        set_memory_limit(4 << 30)
    np.testing.assert_array_equal(found, expected(array, 1, False, "int64"))


@pytest.mark.skipif(not status(), reason="a simulated device records its launches")
@pytest.mark.parametrize(("shape", "launches"), [((3, 200), 1), ((3, 4096), 1), ((1, 4097), 6)])
def test_how_often_a_sort_is_launched(shape: tuple[int, int], launches: int) -> None:
    """What TVM would sort takes several launches for each line."""
    build = partial(relax.op.argsort, axis=1, dtype="int64")
    machine = compile_all({"main": (build, [small(shape)])}, "cuda")
    given = tvm.runtime.tensor(small(shape), device=device_of("cuda"))
    with record() as log:
        machine["main"](given)
    assert len(log.launches) == launches
