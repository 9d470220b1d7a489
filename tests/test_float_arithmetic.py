"""Messages of floats are what their operators compute one after the other: no real numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fuzzing_messages import every_one_fused
from harness import compile_all, run_compiled
from tvm import relax

from tvm_scatter.ops.operators import index_put
from tvm_scatter.problem.reductions import numpy_dtype

ROWS, WIDTH = 24, 8


def _emit(operator: str, *operands: Any) -> Any:
    return relax.BlockBuilder.current().emit(getattr(relax.op, operator)(*operands))


class Emitted:
    """Writes operators as Relax calls."""

    add = staticmethod(lambda *each: _emit("add", *each))
    subtract = staticmethod(lambda *each: _emit("subtract", *each))
    equal = staticmethod(lambda *each: _emit("equal", *each))
    not_equal = staticmethod(lambda *each: _emit("not_equal", *each))
    where = staticmethod(lambda *each: _emit("where", *each))


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
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_is_not_simplified(device: str, name: str, dtype: str) -> None:
    message, kind = MESSAGES[name], numpy_dtype(dtype)
    generator = np.random.default_rng(0)
    x, y = (generator.uniform(0.25, 1.25, (ROWS, WIDTH)).astype(kind) for _ in range(2))
    x[3, 1], x[4, 2], x[5, 3], y[6, 4] = np.inf, -np.inf, np.nan, np.inf
    y[7] = x[7]
    src, dst = generator.permutation(ROWS), generator.permutation(ROWS)

    def build(x: Any, y: Any, src: Any, dst: Any) -> Any:
        rows = [_emit("take", each, src, 0) for each in (x, y)]
        number = relax.const(np.asarray(256, kind), dtype)
        zeros = _emit("zeros", [ROWS, WIDTH], dtype)
        return index_put(zeros, [dst], message(Emitted, *rows, number), [0], "add")

    calls = {"main": (build, [x, y, src, dst])}
    with every_one_fused(device):
        compiled = compile_all(calls, device)
    found = run_compiled(compiled, calls, device)["main"]
    expected = np.zeros((ROWS, WIDTH), kind)
    with np.errstate(invalid="ignore"):
        expected[dst] = message(np, x[src], y[src], np.asarray(256, kind)).astype(kind)
    np.testing.assert_array_equal(found.astype("float32"), expected.astype("float32"))
