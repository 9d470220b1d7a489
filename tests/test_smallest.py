"""The smallest and the largest integers of lines, against NumPy's stable sort."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import tvm
from harness import compile_all, device_of, orders
from lines_of_integers import Array, any_of, in_order, small
from tvm import relax

#: An array, an axis, how many are wanted, whether the largest are, and the type of their places.
Case = tuple[Array, int, int, bool, str]


def expected(array: Array, axis: int, count: int, largest: bool, dtype: str) -> list[Array]:
    order = in_order(array, axis, largest).take(range(count), axis)
    return [np.take_along_axis(array, order, axis), order.astype(dtype)]


def check(cases: Sequence[Case], device: str, symbolic: bool = False) -> None:
    calls: dict[str, tuple[Callable[..., Any], list[Array]]] = {}
    for number, (array, axis, count, largest, dtype) in enumerate(cases):
        build = partial(
            relax.op.topk, k=count, axis=axis, ret_type="both", largest=largest, dtype=dtype
        )
        calls[f"case_{number}"] = (build, [array])
    machine = compile_all(calls, device, symbolic=symbolic)
    for _ in orders(device):
        for at, case in zip(calls, cases, strict=True):
            found = machine[at](tvm.runtime.tensor(case[0], device=device_of(device)))
            for mine, wanted in zip(found, expected(*case), strict=True):
                assert str(mine.dtype) == str(wanted.dtype)
                mine = mine.numpy()
                np.testing.assert_array_equal(mine, wanted, err_msg=f"{case[0].shape} {case[1:]}")


#: Shapes and axes, and how many are wanted.
SHAPES = [
    *(((1,), 0, 1), ((2,), 0, 1), ((9,), 0, 4), ((7, 1), 1, 1), ((1, 33), 1, 16), ((33, 2), 0, 3)),
    *(((2, 3, 40), 2, 5), ((2, 40, 3), 1, 20), ((3, 2, 2, 9), -1, 2), ((2, 2, 8, 2, 3), 2, 1)),
]
#: Lengths around those that a warp, a small and a large block keep, and what they put in order.
LENGTHS = [(1023, 7), (1024, 128), (1025, 129), (4097, 1024), (16384, 1), (16385, 40)]
#: Longer ones, of whose parts a few or many elements are left.
LONGER = [(40_000, 3), (20_001, 1000)]


def test_shapes_and_axes(device: str) -> None:
    cases = [
        (make(shape, dtype), axis, count, largest, "int64")
        for shape, axis, count in SHAPES
        for make, dtype, largest in ((small, "int32", False), (any_of, "int64", True))
    ]
    check(cases, device)


def test_unknown_sizes(device: str) -> None:
    cases: list[Case] = [(small((3, 5)), 1, 2, False, "int32")]
    cases += [(small((900, 3), "int64"), 0, 40, True, "int64")]
    cases += [(any_of((2, 3000)), 1, 1024, False, "int64")]
    check(cases, device, symbolic=True)


@pytest.mark.parametrize("count", [5, 1500])
def test_lines_that_turn_out_too_short(on_cuda: str, count: int) -> None:
    """What is behind them reads as zero, wherever it may be read."""
    build = partial(relax.op.topk, k=count, axis=1, ret_type="both", largest=False, dtype="int64")
    machine = compile_all({"main": (build, [small((2, 3000))])}, on_cuda, symbolic=True)
    for length in (3, 1):
        line = np.arange(length, 0, -1, "int32")[None].repeat(2, 0)
        given = tvm.runtime.tensor(line, device=device_of(on_cuda))
        values, places = (each.numpy() for each in machine["main"](given))
        np.testing.assert_array_equal(values[:, :length], line[:, ::-1])
        np.testing.assert_array_equal(places[:, :length], [np.arange(length)[::-1]] * 2)
        assert not values[:, length:].any() and not places[:, length:].any()
    nothing = tvm.runtime.tensor(np.zeros((2, 0), "int32"), device=device_of(on_cuda))
    assert not machine["main"](nothing)[0].numpy().any()


def test_places_of_other_types(on_cuda: str) -> None:
    check([(small((3, 9)), 1, 2, False, dtype) for dtype in ("float32", "int8", "uint64")], on_cuda)


def test_long_lines_along_an_axis(device: str) -> None:
    """Their parts begin within rows of other lines."""
    check([(any_of((2, 17_000, 3), "int64"), 1, 60, True, "int64")], device)


def test_lengths(device: str) -> None:
    cases = [
        (make((2, length), dtype), 1, count, largest, "int32")
        for length, count in (*LENGTHS, *LONGER)
        for make, dtype, largest in ((small, "int64", True), (any_of, "int32", False))
    ]
    check(cases, device)


@pytest.mark.turns(2)
@pytest.mark.parametrize("length", [300, 40_000])
def test_all_are_equal(device: str, length: int) -> None:
    lines = np.full((3, length), [[5], [np.iinfo("int32").max], [np.iinfo("int32").min]], "int32")
    check([(lines, 1, count, largest, "int64") for count in (1, 100) for largest in (0, 1)], device)
    lines[:, 7::9] = 0
    check([(lines, 1, 100, largest, "int64") for largest in (False, True)], device)
