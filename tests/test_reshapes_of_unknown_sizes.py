"""Reshapes that keep sizes which are known at run time only, where a scatter computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from tvm_scatter.emit.expressions import all_of
from tvm_scatter.lowering.reshaped import reshaped

#: Shapes before and after, of which ``n`` and ``m`` are unknown.
KEPT = [
    (("n", 128), ("n", 4, 32)),
    (("n", 4, 32), ("n", 128)),
    (("n", 4, 6), ("n", 3, 8)),
    (("n", 12, "m"), ("n", 2, 6, "m")),
    (("n", 4, "m", 6), ("n", 2, 2, "m", 3, 2)),
    ((12, "n"), (3, 4, "n")),
    (("n", 1, 5), (1, "n", 5, 1)),
    (("n", "m"), ("n", 1, "m")),
    ((6, 4), (4, 6)),
    ((2, 3, 5), (6, 5)),
    ((1, 1), ()),
    (("n",), ("n",)),
]
#: The same of shapes that are no such reshape.
OTHER = [
    (("n", 128), (128, "n")),
    (("n", "m"), ("m", "n")),
    (("n", 4), ("k",)),
    (("n", 0), ("n", 0, 3)),
    ((4, "n"), ("n", 4)),
    (("n",), (1, "k")),
]
SIZES = {"n": 5, "m": 3, "k": 20}


def with_variables(shape: Sequence[int | str], known: dict[str, Any]) -> list[Any]:
    return [
        known.setdefault(size, tirx.Var(size, "int64")) if isinstance(size, str) else size
        for size in shape
    ]


@pytest.mark.parametrize(("before", "after"), KEPT)
def test_elements_are_where_numpy_has_them(
    before: Sequence[int | str], after: Sequence[int | str]
) -> None:
    known: dict[str, Any] = {}
    tensor = te.placeholder(with_variables(before, known), "float32", name="tensor")
    result = reshaped(tensor, with_variables(after, known))
    assert result is not None
    divisors = [
        each.b
        for kind in (tirx.FloorDiv, tirx.FloorMod)
        for each in all_of(result.op.body[0], kind)
    ]
    assert all(isinstance(each, tirx.IntImm) for each in divisors)
    function = tvm.compile(te.create_prim_func([tensor, result]), target="llvm")
    given, wanted = (
        [SIZES.get(size, size) if isinstance(size, str) else size for size in shape]
        for shape in (before, after)
    )
    values = np.arange(np.prod(given, dtype=int), dtype="float32").reshape(given)
    found = tvm.runtime.tensor(np.zeros(wanted, "float32"))
    function["main"](tvm.runtime.tensor(values), found)
    np.testing.assert_array_equal(found.numpy(), values.reshape(wanted))


@pytest.mark.parametrize(("before", "after"), OTHER)
def test_other_reshapes_are_left_to_tvm(
    before: Sequence[int | str], after: Sequence[int | str]
) -> None:
    known: dict[str, Any] = {}
    tensor = te.placeholder(with_variables(before, known), "float32", name="tensor")
    assert reshaped(tensor, with_variables(after, known)) is None
