"""One update, as of one position of a cache: every operator finds a bad index that is its only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from harness import compile_all, device_of
from tvm import relax

from tvm_scatter.ops.operators import index_put, scatter_elements, scatter_nd

EXTENT = 5
BAD = (EXTENT, EXTENT + 1, -EXTENT - 1, 2**31, -(2**31), 2**40, 2**63 - 1, -(2**63))
DATA = np.zeros((EXTENT, 3), "float32")
ROW, ONE = np.ones((1, 3), "float32"), np.ones((1, 1), "float32")


def stock_put(data: Any, *rest: Any) -> Any:
    return relax.op.index_put(data, relax.Tuple(list(rest[:-1])), rest[-1])


#: What is built, the shapes of the index tensors, the updates, and whether it takes negative ones.
OPERATORS: dict[str, tuple[Any, list[tuple[int, ...]], Any, bool]] = {
    "elements": (lambda d, i, u: scatter_elements(d, i, u, 0), [(1, 1)], ONE, False),
    "elements_add": (lambda d, i, u: scatter_elements(d, i, u, 0, "add"), [(1, 1)], ONE, False),
    "stock_elements": (lambda d, i, u: relax.op.scatter_elements(d, i, u, 0), [(1, 1)], ONE, True),
    "nd": (scatter_nd, [(1, 1)], ROW, True),
    "nd_alone": (scatter_nd, [(1,)], ROW[0], True),
    "stock_nd": (lambda d, i, u: relax.op.scatter_nd(d, i, u, "update"), [(1, 1)], ROW, True),
    "pair": (scatter_nd, [(1, 2)], ONE[0], True),
    "stock_pair": (lambda d, i, u: relax.op.scatter_nd(d, i, u, "update"), [(1, 2)], ONE[0], True),
    "put": (lambda d, i, u: index_put(d, [i], u), [(1,)], ROW, True),
    "put_max": (lambda d, i, u: index_put(d, [i], u, reduction="max"), [(1,)], ROW, True),
    "put_two": (lambda d, i, j, u: index_put(d, [i, j], u), [(1,), (1,)], ONE[0], True),
    "stock_put": (stock_put, [(1,), (1,)], ONE[0], True),
    "stock_add": (
        lambda d, i, j, u: relax.op.index_put(d, relax.Tuple([i, j]), u, accumulate=True),
        [(1,), (1,)],
        ONE[0],
        True,
    ),
}


#: The same along the second axis.
COLUMNS: dict[str, tuple[Any, list[tuple[int, ...]], Any, bool]] = {
    "line": (lambda d, i, u: scatter_elements(d, i, u, 1), [(1, 1)], ONE, False),
    "stock_line": (lambda d, i, u: relax.op.scatter_elements(d, i, u, 1), [(1, 1)], ONE, True),
    "column": (lambda d, i, u: index_put(d, [i], u, [1]), [(1,)], ONE, True),
}
#: Those whose sizes may all be symbolic.
_SYMBOLIC = ("elements", "elements_add", "stock_elements", "put", "put_max", "put_two", "stock_put")


@pytest.mark.turns(2)
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_along_the_first_axis(device: str, dtype: str) -> None:
    try_all(OPERATORS, DATA, 0, device, dtype)


@pytest.mark.turns(2)
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_along_the_second_axis(device: str, dtype: str) -> None:
    try_all(COLUMNS, DATA.T.copy(), 1, device, dtype)


def test_symbolic_sizes() -> None:
    chosen = {name: OPERATORS[name] for name in _SYMBOLIC}
    try_all(chosen, DATA, 0, "llvm", "int64", symbolic=True)


def try_all(
    operators: dict[str, tuple[Any, list[tuple[int, ...]], Any, bool]],
    data: np.ndarray[Any, Any],
    axis: int,
    device: str,
    dtype: str,
    symbolic: bool = False,
) -> None:
    """Call each operator with good and with bad indices along an axis."""
    calls = {
        name: (build, [data, *(np.zeros(shape, dtype) for shape in shapes), updates])
        for name, (build, shapes, updates, _) in operators.items()
    }
    machine = compile_all(calls, device, symbolic, bounds="raise")
    limits = np.iinfo(dtype)
    for name, (_, arrays) in calls.items():
        lowest = -EXTENT if operators[name][3] else 0
        for value in (0, EXTENT - 1, -1, -EXTENT, *BAD):
            if not limits.min <= value <= limits.max:
                continue
            arrays[1].flat[0] = value
            tensors = [tvm.runtime.tensor(array, device=device_of(device)) for array in arrays]
            if not lowest <= value < EXTENT:
                with pytest.raises(IndexError, match=rf"index {value} at"):
                    machine[name](*tensors)
                continue
            written = machine[name](*tensors).numpy()
            there = written.take(value % EXTENT, axis)
            assert there.any() and written.sum() == there.sum(), (name, value)
