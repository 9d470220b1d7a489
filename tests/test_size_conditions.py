"""Conditions of sizes that are written as Python does, against Python itself."""

from __future__ import annotations

import math
from itertools import product
from types import SimpleNamespace

import pytest
from tvm import tirx
from tvm.sym import Analyzer

from tvm_scatter.problem.size_conditions import names_of, parsed, value_of

#: What the texts call.
LIBRARIES = {"math": math, "torch": SimpleNamespace(sym_float=float)}
SIZES = (0, 1, 2, 3, 7, 64)


@pytest.mark.parametrize(
    "text",
    [
        "n % 2 == 0",
        "-n + 3 * m >= (n - 1) // 2",
        "n // 3 == 2 and (m != 7 or not n < m)",
        "min(n, m, 5) < max(3, m)",
        "0 <= n - m < 3",
        "math.trunc(0.5 * torch.sym_float(n)) == 3",
        "math.floor(n / 4) + math.ceil(m / 4) > 2",
        "(-n) % 4 <= 1.5",
        "n == 7 or 10 % (n - 7) == 0 or 10 // (n - 7) == -2",
        "abs(n - m) < 3 <= abs(-n)",
        "n & 3 == 0 or (n | 4) ^ 1 > m << 2 >> 1",
    ],
)
def test_conditions_are_those_of_python(text: str) -> None:
    condition, analyzer = parsed(text), Analyzer()
    names = names_of(condition)
    for sizes in product(SIZES, repeat=len(names)):
        given = dict(zip(names, sizes, strict=True))
        found = value_of(condition, {name: tirx.IntImm("int64", n) for name, n in given.items()})
        expected = bool(eval(text, LIBRARIES, given))
        assert bool(int(analyzer.simplify(found))) == expected, f"{text}: {given}"


@pytest.mark.parametrize(
    "text",
    ["n // 0.5 == 2", "(n == 2) + 1 > m", "not n", "n & 0.5 == 0", "round(n, 1) < 2", "f(n)"],
)
def test_others_are_not_understood(text: str) -> None:
    condition = parsed(text)
    sizes = {name: tirx.Var(name, "int64") for name in names_of(condition)}
    with pytest.raises(NotImplementedError):
        value_of(condition, sizes)


def test_names_stand_in_the_order_in_which_they_are_written() -> None:
    assert names_of(parsed("2 * m < max(n, m) // math.trunc(k / 2)")) == ["m", "n", "k"]
