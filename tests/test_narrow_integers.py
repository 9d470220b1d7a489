"""Integers of 8 and 16 bits wrap around before anything wider is computed of them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from harness import run_all
from tvm.relax import op

import tvm_scatter
from tvm_scatter.ops.operators import scatter_elements

#: Each result does not fit into its type. They are built of NumPy's operators and of Relax's.
RESULTS = {
    "sum": lambda _, x, y: x + y,
    "difference": lambda _, x, y: x - y,
    "product": lambda _, x, y: x * y,
    "polynomial": lambda _, x, y: (x * y + x) * y - x,
    "inverse": lambda of, x, _: of.bitwise_not(x),
    "left_shift": lambda of, x, _: of.left_shift(x, of.ones_like(x)),
    "magnitude": lambda of, x, _: of.abs(x),
}
READERS = {
    "stored": lambda _, wrapped, y: wrapped,
    "widened": lambda _, wrapped, y: wrapped.astype("int32"),
    "of_a_float": lambda _, wrapped, y: wrapped.astype("float32"),
    "compared": lambda _, wrapped, y: wrapped > y,
    "divided": lambda _, wrapped, y: wrapped // y,
    "right_shift": lambda of, wrapped, y: of.right_shift(wrapped, of.ones_like(y)),
    "maximum": lambda of, wrapped, y: of.maximum(wrapped, y),
}


DTYPES = ("int8", "uint8", "int16", "uint16")
SHAPES = ((5, 6), (16, 64))


@pytest.mark.turns(4)
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_wrap_around(device, dtype):
    """Types of 8 bits have one shape, those of 16 the other."""
    check_wrapping(device, dtype, SHAPES[dtype.endswith("16")])


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_wrap_around_in_the_other_shape(device, dtype):
    check_wrapping(device, dtype, SHAPES[dtype.endswith("8")])


def check_wrapping(device, dtype, shape):
    limits = np.iinfo(dtype)
    random = np.random.default_rng(1)
    x, y = (random.integers(limits.min, limits.max, shape, dtype, endpoint=True) for _ in range(2))
    y |= 1

    def build(result, reader, of, x, y):
        return reader(of, result(of, x, y), y)

    built = {
        f"{name}_{read}": partial(build, result, reader)
        for name, result in RESULTS.items()
        for read, reader in READERS.items()
    }
    calls = {name: (partial(each, op), [x, y]) for name, each in built.items()}
    for name, result in run_all(calls, device).items():
        np.testing.assert_array_equal(result, built[name](np, x, y), name)


def test_the_sum_that_a_mean_divides_wraps_around(device):
    """As PyTorch's does: 600 is 88 in 8 bits."""

    def build(data, index, updates):
        return scatter_elements(data, index, updates, 0, "mean", include_self=False)

    arrays = [np.zeros(1, "uint8"), np.zeros(3, "int64"), np.full(3, 200, "uint8")]
    np.testing.assert_array_equal(run_all({"main": (build, arrays)}, device)["main"], [29])


@pytest.mark.turns(4)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{}, {"gather": False, "row_sums": False, "fuse": False}])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_messages_wrap_around(device, dtype, options):
    torch = pytest.importorskip("torch")
    from torch_harness import check

    def messages(x, y, edges):
        product = x[edges[0]] * y[edges[1]]
        nodes = torch.zeros_like(x)
        added = nodes.to(torch.int32).index_add(0, edges[1], product.to(torch.int32))
        largest = nodes.index_reduce(0, edges[1], product, "amax")
        return product.sum(-1), product.amax(-1), added, largest

    x = torch.randint(-100, 100, (5, 6)).to(getattr(torch, dtype))
    edges = torch.stack([torch.arange(8) % 5, torch.arange(8) * 2 % 5])
    with tvm_scatter.options(**options):
        check(messages, x, x.flip(0), edges, device=device)
