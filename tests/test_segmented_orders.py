"""``segmented`` orders its updates as an order that is shared: also of elements and of pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import run_all

from tvm_scatter.ops.operators import index_put, scatter_elements
from tvm_scatter.strategies.cuda.ordering import forms_from

COUNT = 900


def hot(shape: tuple[int, ...], extent: int, seed: int) -> np.ndarray[Any, Any]:
    """Indices of which most are the same, some negative, and some out of range."""
    random = np.random.default_rng(seed)
    index = np.where(random.random(shape) < 0.6, 1, random.integers(-extent, extent, shape))
    return np.where(random.random(shape) < 0.05, extent + 3, index)


def numbers(shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    """Small whole numbers, so that sums are exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype("float32")


def places_of(index: np.ndarray[Any, Any], extent: int) -> tuple[Any, Any]:
    """Which indices are good, and the places that they name."""
    return (index >= -extent) & (index < extent), np.where(index < 0, index + extent, index)


def of_elements() -> tuple[Any, list[Any], Any]:
    """Along the middle axis, an index for each element: places of all batches and columns."""
    data, index = numbers((3, 7, 5), 0), hot((3, COUNT // 5, 5), 7, 1)
    updates = numbers(index.shape, 2)
    good, places = places_of(index, 7)
    wanted, (batch, _, column) = data.copy(), np.indices(index.shape)
    np.add.at(wanted, (batch[good], places[good], column[good]), updates[good])
    return (
        lambda *given: scatter_elements(*given, axis=1, reduction="add", wrap_negative=True),
        [data, index, updates],
        wanted,
    )


def of_rows() -> tuple[Any, list[Any], Any]:
    data, index = numbers((11, 6), 3), hot((COUNT,), 11, 4)
    updates = numbers((COUNT, 6), 5)
    good, places = places_of(index, 11)
    wanted = data.copy()
    np.add.at(wanted, places[good], updates[good])
    return lambda x, at, new: index_put(x, [at], new, [0], "add"), [data, index, updates], wanted


def of_pairs() -> tuple[Any, list[Any], Any]:
    """Two indices name a place together."""
    data, first, second = numbers((4, 9, 3), 6), hot((COUNT,), 4, 7), hot((COUNT,), 9, 8)
    updates = numbers((COUNT, 3), 9)
    (good, rows), (others, columns) = places_of(first, 4), places_of(second, 9)
    good = good & others
    wanted = data.copy()
    np.add.at(wanted, (rows[good], columns[good]), updates[good])
    return (
        lambda x, i, j, new: index_put(x, [i, j], new, [0, 1], "add"),
        [data, first, second, updates],
        wanted,
    )


@pytest.mark.usefixtures("on_cuda")
@pytest.mark.parametrize("form", ["owners", "buckets", "radix"])
def test_sums(form: str) -> None:
    cases = {"elements": of_elements(), "rows": of_rows(), "pairs": of_pairs()}
    calls = {name: (build, arrays) for name, (build, arrays, _) in cases.items()}
    with forms_from(form):
        found = run_all(calls, "cuda", implementation="segmented", bounds="drop")
    for name, (*_, wanted) in cases.items():
        np.testing.assert_array_equal(found[name], wanted, err_msg=name)
