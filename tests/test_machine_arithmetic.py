"""Messages are what their operators compute one after the other: TVM takes them for mathematics."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import real_gpu
from fuzzing_messages import every_one_fused
from harness import compile_all, run_compiled
from tvm import relax

import tvm_scatter
from tvm_scatter.ops.operators import index_put
from tvm_scatter.problem.reductions import numpy_dtype

ROWS, WIDTH = 24, 8


def _emit(operator: str, *operands: Any) -> Any:
    return relax.BlockBuilder.current().emit(getattr(relax.op, operator)(*operands))


class Emitted:
    """Writes operators as Relax calls, by NumPy's names."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # That of whole numbers down to the next one is NumPy's.
        return lambda *each: _emit("floor_mod" if name == "mod" else name, *each)


#: A message of rows x and y and a number c, by Relax or by NumPy.
MESSAGES: dict[str, Callable[..., Any]] = {
    "a sum without a term": lambda do, x, y, c: do.subtract(do.add(x, y), y),
    "a sum without its first": lambda do, x, y, c: do.subtract(do.add(y, x), y),
    "a sum without a number": lambda do, x, y, c: do.subtract(do.add(x, c), c),
    "a number less a sum with it": lambda do, x, y, c: do.subtract(c, do.add(y, c)),
    "itself from itself": lambda do, x, y, c: do.subtract(x, x),
    "equal differences": lambda do, x, y, c: do.subtract(do.subtract(x, y), do.subtract(x, y)),
    "two sums with a term": lambda do, x, y, c: do.subtract(do.add(x, c), do.add(c, y)),
    "what is a number": lambda do, x, y, c: do.where(do.equal(x, x), y, c),
    "what is not a number": lambda do, x, y, c: do.where(do.not_equal(x, x), c, y),
    "equal when rounded": lambda do, x, y, c: do.where(do.equal(do.add(x, c), do.add(y, c)), x, y),
    "unequal": lambda do, x, y, c: do.where(do.not_equal(do.add(x, c), do.add(y, c)), x, y),
    "a chosen sum without a term": lambda do, x, y, c: do.subtract(
        do.where(do.greater(x, y), do.add(do.multiply(x, c), y), y), y
    ),
    "what is cut off": lambda do, x, y, c: do.subtract(do.where(do.greater(x, y), x, y), y),
    "choices by one condition": lambda do, x, y, c: do.subtract(
        do.where(do.greater(x, y), x, c), do.where(do.greater(x, y), x, y)
    ),
    "equal products": lambda do, x, y, c: do.where(
        do.equal(do.multiply(x, y), do.multiply(x, y)), y, c
    ),
    "itself by a detour": lambda do, x, y, c: do.where(
        do.equal(do.divide(do.multiply(x, c), c), x), y, c
    ),
    "no times an infinity": lambda do, x, y, c: do.add(
        do.multiply(x, do.subtract(c, c)), do.multiply(y, do.subtract(c, c))
    ),
    "one or the other": lambda do, x, y, c: do.where(
        do.logical_or(do.less(x, y), do.less_equal(y, x)), y, c
    ),
}

#: The same of integers, which wrap around.
OF_INTEGERS: dict[str, Callable[..., Any]] = {
    "one more is more": lambda do, x, y, c: do.where(do.greater(do.add(x, c), x), x, c),
    "a difference below zero": lambda do, x, y, c: do.where(
        do.less(do.subtract(x, y), do.subtract(c, c)), x, c
    ),
    "what is cut off": lambda do, x, y, c: do.subtract(do.maximum(x, y), y),
    "a product and its factor": lambda do, x, y, c: do.floor_divide(do.multiply(x, c), c),
    "a sum and its part": lambda do, x, y, c: do.floor_divide(do.add(x, do.multiply(y, c)), c),
    "what is left of a multiple": lambda do, x, y, c: do.mod(do.multiply(x, c), c),
    "the greater of multiples": lambda do, x, y, c: do.maximum(
        do.multiply(x, c), do.multiply(y, c)
    ),
    "the smaller of sums": lambda do, x, y, c: do.minimum(do.add(x, c), do.add(y, c)),
    "equal multiples": lambda do, x, y, c: do.where(
        do.equal(do.multiply(x, do.add(c, c)), do.multiply(y, do.add(c, c))), x, c
    ),
    "no negative is its own size": lambda do, x, y, c: do.where(
        do.greater_equal(do.abs(x), do.subtract(c, c)), x, c
    ),
    "more bits than it has": lambda do, x, y, c: reduce(
        do.multiply, [reduce(do.multiply, [c] * 10)] * 3, x
    ),
    "numbers beside each other": lambda do, x, y, c: do.multiply(
        do.add(do.multiply(do.add(x, c), reduce(do.multiply, [c] * 3)), c), c
    ),
    "a chosen multiple": lambda do, x, y, c: do.maximum(
        do.where(do.greater(x, y), do.multiply(x, c), y), do.multiply(y, c)
    ),
}


def message_of(message: Callable[..., Any], number: int, dtype: str, reduction: str) -> Any:
    """A function that scatters a message of gathered rows of x and y and a number into zeros."""

    def build(x: Any, y: Any, src: Any, dst: Any) -> Any:
        rows = [_emit("take", each, src, 0) for each in (x, y)]
        constant = relax.const(np.asarray(number, numpy_dtype(dtype)), dtype)
        zeros = _emit("zeros", [ROWS, WIDTH], dtype)
        return index_put(zeros, [dst], message(Emitted(), *rows, constant), [0], reduction)

    return build


def run_fused(build: Any, arrays: list[Any], device: str) -> Any:
    """What a function of arrays gives, whose scatters compute all that they can."""
    calls = {"main": (build, arrays)}
    with every_one_fused(device):
        compiled = compile_all(calls, device)
    return run_compiled(compiled, calls, device)["main"]


@pytest.mark.turns(6)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_is_not_simplified(device: str, name: str, dtype: str) -> None:
    message, kind = MESSAGES[name], numpy_dtype(dtype)
    generator = np.random.default_rng(0)
    x, y = (generator.uniform(0.25, 1.25, (ROWS, WIDTH)).astype(kind) for _ in range(2))
    x[3, 1], x[4, 2], x[5, 3], y[6, 4] = np.inf, -np.inf, np.nan, np.inf
    y[7] = x[7]
    src, dst = generator.permutation(ROWS), generator.permutation(ROWS)

    found = run_fused(message_of(message, 256, dtype, "add"), [x, y, src, dst], device)
    expected = np.zeros((ROWS, WIDTH), kind)
    with np.errstate(invalid="ignore"):
        expected[dst] = message(np, x[src], y[src], np.asarray(256, kind)).astype(kind)
    np.testing.assert_array_equal(found.astype("float32"), expected.astype("float32"))


@pytest.mark.turns(9)
@pytest.mark.optimised
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
@pytest.mark.parametrize("name", OF_INTEGERS)
def test_a_message_of_integers_wraps_around(device: str, name: str, dtype: str) -> None:
    if device == "cuda" and real_gpu() and name == "no negative is its own size":
        pytest.skip("GPUs take the size of the least integer for positive")
    message, least, most = OF_INTEGERS[name], np.iinfo(dtype).min, np.iinfo(dtype).max
    generator = np.random.default_rng(0)
    x, y = (generator.integers(least, most, (ROWS, WIDTH), dtype) for _ in range(2))
    x[3], x[4], y[5], y[6], x[7, 1:], y[7] = most, least, most, least, 7, 7
    src, dst = generator.permutation(ROWS), generator.permutation(ROWS)

    found = run_fused(message_of(message, 6, dtype, "update"), [x, y, src, dst], device)
    expected = np.zeros((ROWS, WIDTH), dtype)
    with np.errstate(over="ignore"):
        expected[dst] = message(np, x[src], y[src], np.asarray(6, dtype))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.optimised
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_an_index_that_wraps_around_reads_where_it_ends(device: str, dtype: str) -> None:
    """Twice as much as is read there, and a third of it: TVM would read elsewhere."""
    x = np.arange(ROWS * WIDTH, dtype="float32").reshape(ROWS, WIDTH)
    turn = 1 << (np.iinfo(dtype).bits - 1)
    turns = np.array([3, turn // 3 * 2 + 5, -turn, 1, -7, turn - 1], dtype)

    def build(x: Any, index: Any, dst: Any) -> Any:
        number = relax.const(np.asarray(6, dtype), dtype)
        half = relax.const(np.asarray(3, dtype), dtype)
        src = _emit("floor_divide", _emit("multiply", index, number), half)
        zeros = _emit("zeros", [len(turns), WIDTH], "float32")
        return index_put(zeros, [dst], _emit("take", x, src, 0), [0], "update")

    with np.errstate(over="ignore"):
        src = (turns * np.asarray(6, dtype)) // np.asarray(3, dtype)
    expected = np.where((src >= -ROWS) & (src < ROWS), 1, 0)[:, None] * x[src % ROWS]
    found = run_fused(build, [x, turns, np.arange(len(turns))], device)
    np.testing.assert_array_equal(found, expected)


#: Places in 61 rows that are computed from keys of any size, and from numbers.
PLACES: dict[str, Callable[..., Any]] = {
    "a square": lambda do, key, n: do.minimum(do.maximum(do.multiply(key, key), n(0)), n(60)),
    "a size": lambda do, key, n: do.minimum(do.abs(do.multiply(key, n(3))), n(60)),
    "by a comparison": lambda do, key, n: do.where(
        do.greater(do.add(key, n(1)), key), n(1), do.subtract(n(60), n(60))
    ),
    "a remainder": lambda do, key, n: do.mod(do.add(do.multiply(key, n(25)), n(7)), n(61)),
}


@pytest.mark.turns(4)
@pytest.mark.optimised
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("name", PLACES)
def test_a_computed_place_is_within_what_is_read(device: str, name: str, dtype: str) -> None:
    """A compiler takes a square for positive, and leaves out what would make it so."""
    place, most = PLACES[name], np.iinfo(dtype).max
    key = np.random.default_rng(0).integers(-most - 1, most, 4000, dtype)
    key[:6] = most, -most - 1, 0, 3, -3, 1 << (np.iinfo(dtype).bits // 2)
    table = np.repeat(np.arange(61, dtype="float32")[:, None], WIDTH, 1)

    def build(table: Any, key: Any, dst: Any) -> Any:
        src = place(Emitted(), key, lambda n: relax.const(np.asarray(n, dtype), dtype))
        zeros = _emit("zeros", [4000, WIDTH], "float32")
        rows = _emit("multiply", _emit("take", table, src, 0), relax.const(2.0, "float32"))
        return index_put(zeros, [dst], rows, [0], "add")

    calls = {"main": (build, [table, key, np.arange(4000)])}
    with tvm_scatter.options(fuse=True, bounds="drop"):
        compiled = compile_all(calls, device)
    found = run_compiled(compiled, calls, device)["main"]
    with np.errstate(over="ignore"):
        src = place(np, key, lambda n: np.asarray(n, dtype))
    inside = (src >= -61) & (src < 61)
    expected = np.where(inside, 2.0, 0.0)[:, None] * table[np.where(inside, src, 0)]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.optimised
@pytest.mark.parametrize("number", [3_000_000_000, (1 << 40) - 1])
def test_a_cast_to_fewer_bits_may_change_the_sign(device: str, number: int) -> None:
    x = np.random.default_rng(0).integers(0, 1 << 62, (ROWS, WIDTH))
    src = np.random.default_rng(1).permutation(ROWS)

    def build(x: Any, src: Any, dst: Any) -> Any:
        least = relax.const(np.asarray(0, "int32"), "int32")
        cut = _emit("minimum", _emit("take", x, src, 0), relax.const(np.asarray(number), "int64"))
        message = _emit("maximum", _emit("astype", cut, "int32"), least)
        return index_put(_emit("zeros", [ROWS, WIDTH], "int32"), [dst], message, [0], "update")

    found = run_fused(build, [x, src, np.arange(ROWS)], device)
    expected = np.maximum(np.minimum(x[src], number).astype("int32"), 0)
    np.testing.assert_array_equal(found, expected)


def test_a_cast_to_fewer_bits_is_not_moved_to_what_is_cut_off(device: str) -> None:
    """Of 65539 and 5 the greater one is 3 in 16 bits, and 5 would be the greater of 3 and 5."""
    x = np.full((ROWS, WIDTH), 65539, "int32")
    src = np.arange(ROWS)

    def build(x: Any, src: Any, dst: Any) -> Any:
        five = relax.const(np.asarray(5, "int32"), "int32")
        cut = _emit("maximum", _emit("take", x, src, 0), five)
        message = _emit("astype", _emit("astype", cut, "int16"), "int32")
        return index_put(_emit("zeros", [ROWS, WIDTH], "int32"), [dst], message, [0], "update")

    found = run_fused(build, [x, src, src], device)
    assert (found == 3).all()
