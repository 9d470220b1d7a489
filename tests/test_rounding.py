"""How far 16-bit sums are from float64: the bounds of ``problem.reductions``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from cuda_cases import cuda_target
from harness import applicable, run, run_all

from tvm_scatter import ScatterProblem, strategy_for
from tvm_scatter.ops.operators import index_put
from tvm_scatter.problem.reductions import numpy_dtype, sum_error_bound
from tvm_scatter.problem.sizes import Sizes
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.tuning.space.candidates import need_strategy

pytestmark = pytest.mark.optimised

#: Of one destination that takes most of them; ones added one by one in bfloat16 stop at 256.
_COUNT = 1500


def _build(data, index, updates):
    return index_put(data, [index], updates, reduction="add")


def _build_lines(data, index, updates):
    return index_put(data, [index], updates, [1], "add")


def _calls(*dtypes):
    """Sums of positive values into a few rows, a few elements, and elements of a few lines."""
    generator = np.random.default_rng(3)
    index = np.where(generator.random(_COUNT) < 0.8, 1, generator.integers(0, 4, _COUNT))
    forms = {
        "rows": (_build, (4, 16), (_COUNT, 16)),
        "elements": (_build, (4,), (_COUNT,)),
        "lines": (_build_lines, (3, 4), (3, _COUNT)),
    }
    return {
        f"{dtype}_{name}": (
            build,
            [
                (0.5 + generator.random(data)).astype(numpy_dtype(dtype)),
                index,
                (0.5 + generator.random(updates)).astype(numpy_dtype(dtype)),
            ],
        )
        for dtype in dtypes
        for name, (build, data, updates) in forms.items()
    }


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.turns(4)
def test_sums_of_16_bits(device: str, implementation: str, dtype: str) -> None:
    calls = _calls(dtype)
    calls = {name: calls[name] for name in applicable(calls, implementation, device)}
    if not calls:
        pytest.skip("it takes no sums")
    results = run_all(calls, device, implementation=implementation, bounds="trust")
    wide = strategy_for(device).implementations[implementation].accumulates_wide
    for name, result in results.items():
        data, index, updates = calls[name][1]
        exact, additions = data.astype("float64"), np.zeros(data.shape)
        at = (slice(None), index) if name.endswith("lines") else index
        np.add.at(exact, at, updates.astype("float64"))
        np.add.at(additions, at, 1.0)
        # Everything is positive, so the sum is also the sum of magnitudes.
        bound = sum_error_bound(name.split("_")[0], additions, exact, exact, wide)
        error = np.abs(result.astype("float64") - exact)
        assert (error <= bound).all(), (name, float((error / bound).max()))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_mean_of_16_bits_is_widened(dtype: str) -> None:
    def build(data, index, updates):
        return index_put(data, [index], updates, [1], "mean")

    _, (data, index, updates) = _calls(dtype)[f"{dtype}_lines"]
    found = run(build, [data, index, updates], "llvm", implementation="widened")
    for place in range(data.shape[1]):
        those = updates[:, index == place].astype("float64")
        mean = (data[:, place].astype("float64") + those.sum(1)) / (1 + those.shape[1])
        np.testing.assert_array_equal(found[:, place], mean.astype("float32").astype(data.dtype))


def test_a_sum_rounded_after_every_addition_breaks_the_wide_bound() -> None:
    dtype = numpy_dtype("bfloat16")
    total = dtype.type(0)
    for _ in range(_COUNT):
        total = dtype.type(total + dtype.type(1))
    assert abs(float(total) - _COUNT) > sum_error_bound("bfloat16", _COUNT, _COUNT, _COUNT, True)


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("dtype", "symbolic"),
    [
        ("float16", False),
        ("bfloat16", True),
        pytest.param("float16", True, marks=pytest.mark.exhaustive),
        pytest.param("bfloat16", False, marks=pytest.mark.exhaustive),
    ],
)
def test_sums_of_many_are_rounded_once_by_default(device: str, dtype: str, symbolic: bool) -> None:
    """Ones added one by one would stop at 2 048 and 256."""
    index, ones = np.zeros(5000, "int64"), np.ones((5000, 8), numpy_dtype(dtype))
    zeros = np.zeros((3, 8), ones.dtype)
    calls = {
        "add": (_build, [zeros, index, ones]),
        "elements": (_build, [zeros[:, 0].copy(), index, ones[:, 0].copy()]),
        "mean": (partial(index_put_by, "mean"), [zeros, index, ones]),
    }
    found = run_all(calls, device, symbolic, bounds="trust")
    assert float(found["add"][0, 0]) == float(found["elements"][0]) == float(ones.dtype.type(5000))
    assert float(found["mean"][0, 0]) == float(ones.dtype.type(5000 / 5001))


_ANY = ("count", "extents", "slice")


@pytest.mark.parametrize("symbolic", [some for n in range(4) for some in combinations(_ANY, n)])
def test_any_size_may_be_known_at_run_time_only(symbolic: tuple[str, ...]) -> None:
    """What is chosen for some sizes is chosen for the same ones at run time."""
    known = {"count": 5000, "extents": 3, "slice": 8}
    sizes = {
        name: SymbolicSize.product([name if name in symbolic else number])
        for name, number in known.items()
    }
    problem = ScatterProblem(
        batch=SymbolicSize(),
        extents=(sizes.pop("extents"),),
        **sizes,
        data_dtype="bfloat16",
        index_dtype="int64",
        reduction="add",
    )
    target = cuda_target("sm_90")
    branches = need_strategy(target).default(problem, target).branches
    least = branches[0].implementation
    if branches[0].predict is not None:
        at = Sizes.of(problem, {name: known[name] for name in symbolic})
        least = min(branches, key=lambda each: each.predict(at).microseconds).implementation
    assert least.accumulates_wide


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_cpus_round_once_however_few_there_are(dtype: str) -> None:
    """As PyTorch does there. The product of two is too large for float16."""
    one = np.ones(3, numpy_dtype(dtype))
    factors = np.array([300, 300, 0.01], one.dtype)
    found = run(partial(index_put_by, "mul"), [one, np.zeros(3, "int64"), factors], "llvm")
    assert abs(float(found[0]) - 900) < 5


def test_a_few_sums_on_gpus_are_those_of_pytorch() -> None:
    """What takes a few updates does not visit every place of a large output for them."""
    few = ScatterProblem(
        batch=SymbolicSize(),
        extents=(SymbolicSize(1 << 20),),
        slice=SymbolicSize(24),
        count=SymbolicSize(6318),
        data_dtype="bfloat16",
        index_dtype="int64",
        reduction="add",
        in_place=True,
    )
    target = cuda_target("sm_90")
    many = replace(few, count=SymbolicSize(1 << 21))
    assert (
        "rounds to 16 bits"
        in need_strategy(target).default(many, target).alternatives["parallel_injective"]
    )
    assert need_strategy(target).default(few, target).implementation.name == "parallel_injective"
    assert need_strategy(target).default(many, target).implementation.accumulates_wide


def index_put_by(reduction: str, data: Any, index: Any, updates: Any) -> Any:
    return index_put(data, [index], updates, reduction=reduction)


@pytest.mark.parametrize(("dtype", "digits"), [("float16", 11), ("bfloat16", 8)])
@pytest.mark.parametrize("operator", [np.add, np.subtract, np.multiply])
def test_halves_may_be_computed_in_32_bits(dtype: str, digits: int, operator: Any) -> None:
    """Rounded to 32 bits first, results are those of one rounding, which GPUs compute at once."""
    kind, generator = numpy_dtype(dtype), np.random.default_rng(0)
    scales = np.exp2(generator.integers(-6, 7, (2, 100_000)))
    numbers = generator.uniform(0.5, 2, scales.shape) * scales
    left, right = numbers.astype(kind).astype("float32")
    # In 64 bits these are exact.
    fraction, exponent = np.frexp(operator(left.astype("float64"), right.astype("float64")))
    once = np.ldexp(np.rint(np.ldexp(fraction, digits)), exponent - digits)
    normal = np.abs(once) >= 2.0**-14
    twice = operator(left, right).astype(kind).astype("float64")
    np.testing.assert_array_equal(twice[normal], once[normal])
