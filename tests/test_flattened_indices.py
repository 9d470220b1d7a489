"""Indices become the right offsets into memory, also where they fall with a loop."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import tvm
from harness import run_all
from tvm import te
from tvm.relax import op
from tvm.tirx import floordiv, floormod

X = np.arange(60, dtype="float32").reshape(3, 4, 5)
ROWS = np.arange(120, dtype="float32").reshape(2, 3, 4, 5)
IMAGE = np.arange(40, dtype="float32").reshape(5, 8)


def flat(x):
    return op.reshape(x, (-1,))


#: What reads in a falling order behind a change of the shape, its argument, and its result.
READS = {
    "flip": (lambda x: op.flip(flat(x), 0), X, X.ravel()[::-1]),
    "twice": (lambda x: op.reshape(op.flip(flat(x), 0) * op.flip(flat(x), 0), X.shape), X,
              np.square(X.ravel()[::-1]).reshape(X.shape)),
    "rows": (lambda x: op.flip(op.reshape(x, (2, 60)), 1), ROWS, ROWS.reshape(2, 60)[:, ::-1]),
    "slice": (lambda x: op.strided_slice(flat(x), [0], [57], [2], [-2]), X, X.ravel()[57:2:-2]),
    "tiled": (lambda x: op.strided_slice(op.tile(x, (1, 2)), [1], [15], [-17], [-1]), IMAGE,
              np.tile(IMAGE, 2)[:, ::-1]),
    "repeated": (lambda x: op.flip(op.repeat(op.flip(flat(x), 0), 2, 0), 0), X,
                 np.repeat(X.ravel(), 2)),
    "sums": (lambda x: op.flip(op.cumsum(op.flip(flat(x), 0), 0), 0), X,
             np.cumsum(X.ravel()[::-1])[::-1]),
    "reflected": (lambda x: op.nn.pad(op.reshape(x, (1, 60)), [0, 0, 9, 9], "reflect"), X,
                  np.pad(X.reshape(1, 60), [(0, 0), (9, 9)], "reflect")),
    "row_sums": (lambda x: op.sum(op.reshape(op.flip(flat(x), 0), (12, 5)), 1), X,
                 X.ravel()[::-1].reshape(12, 5).sum(1)),
}  # fmt: skip
#: Those whose sizes may all be symbolic.
OF_ANY_SIZE = ("flip", "sums")


@pytest.mark.parametrize("symbolic", (False, True))
@pytest.mark.each_device
def test_reads_in_a_falling_order(device, symbolic):
    names = OF_ANY_SIZE if symbolic else READS
    calls = {name: (READS[name][0], [READS[name][1]]) for name in names}
    results = run_all(calls, device, symbolic, schedule=True if device == "llvm" else None)
    for name in names:
        assert np.array_equal(results[name], READS[name][2]), name


#: Numbers of which TVM's analysis of iterators makes others, for i < 60.
NUMBERS = (
    lambda i: floordiv(59 - i, 20) * 20 + floormod(floordiv(59 - i, 5), 4) * 5 + (59 - i) % 5,
    lambda i: floordiv(59 - i, 5) * 5 + floormod(59 - i, 5),
    lambda i: floordiv(61 - i, 4),
    lambda i: floormod(77 - 3 * i, 12) + 40,
    lambda i: floordiv(130 - 2 * i, 8) + floormod(floordiv(130 - 2 * i, 2), 4) * 20,
    lambda i: floordiv(floormod(i + 8, 15) + 3, 15) + floormod(2 - floormod(i, 15), 8),
    lambda i: floordiv(i, -7) + 20 + floormod(i, -7) * -3,
    lambda i: floormod(9 - floordiv(i + 1, 6), 4) * 6 + floormod(5 - floormod(i, 6), 6),
)  # fmt: skip


def test_offsets_are_the_numbers_of_the_indices():
    """Of one loop, of two, whose numbers make one, and of indices along two axes."""
    functions = {
        f"{form}{at}": reading(form, number).with_attr("global_symbol", f"{form}{at}")
        for form, (at, number) in product(("loop", "loops", "axes"), enumerate(NUMBERS))
    }
    built = tvm.compile(tvm.IRModule(functions), "llvm")
    for name in functions:
        x = np.arange(400).reshape((20, 20) if "axes" in name else (400,))
        result = tvm.runtime.empty((12, 5) if "loops" in name else (60,), "int64")
        built[name](tvm.runtime.tensor(x), result)
        expected = [evaluated(NUMBERS[int(name[-1])], i) for i in range(60)]
        assert result.numpy().ravel().tolist() == expected, name


def reading(form, number):
    """A function that reads at a number for each turn of a loop of 60."""
    x = te.placeholder((20, 20) if form == "axes" else (400,), "int64", "x")

    def loop(i):
        return x[number(i.astype("int64"))]

    def loops(a, b):
        return x[number(a.astype("int64") * 5 + b)]

    def axes(i):
        at = number(i.astype("int64"))
        return x[floordiv(at, 20), floormod(at, 20)]

    read = {"loop": loop, "loops": loops, "axes": axes}[form]
    result = te.compute((12, 5) if form == "loops" else (60,), read)
    return te.create_prim_func([x, result], "int64")


def evaluated(number, i):
    return int(tvm.sym.Analyzer().simplify(number(tvm.tirx.IntImm("int64", i))))
