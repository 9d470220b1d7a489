"""Bits that no order of updates changes: of minima and maxima, and of places without updates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from harness import ProblemRunner, in_order, orders
from special_values import KINDS, draw
from tally import Tally

from tvm_scatter import ScatterProblem, strategy_for
from tvm_scatter.problem.reductions import FLOATS, REDUCTIONS
from tvm_scatter.problem.reference import scatter_reference
from tvm_scatter.problem.symbolic_size import SymbolicSize

Array = np.ndarray[Any, Any]
#: Places, columns and updates: single elements, rows, and rows that are not whole vectors.
EVERY_TYPE = pytest.mark.parametrize(
    "every", (False, pytest.param(True, marks=pytest.mark.exhaustive)), ids=("some", "every_type")
)
SHAPES = {"single": (1, 64, 1, 700), "rows": (1, 23, 4, 300), "batches": (3, 11, 3, 90)}


def _problem(dtype: str, reduction: str, shape: str, **more: Any) -> ScatterProblem:
    batch, extent, width, count = SHAPES[shape]
    problem = ScatterProblem(
        batch=SymbolicSize(batch),
        extents=(SymbolicSize(extent),),
        slice=SymbolicSize(width),
        count=SymbolicSize(count),
        data_dtype=dtype,
        index_dtype="int32",
        reduction=reduction,
        index_batch=batch > 1,
        deterministic=REDUCTIONS[reduction].is_extreme,
        bounds="trust",
    )
    return replace(problem, **more)


def _problems(every: bool, turn: int, *kinds: tuple[str, str, bool]) -> dict[str, ScatterProblem]:
    """Of each kind (shape, reduction, whether the data is included) some types of float, or all.

    The types take turns over the kinds and the implementations.
    """
    return {
        f"{shape}_{reduction}_{'with' if include_self else 'without'}_{dtype}": _problem(
            dtype, reduction, shape, include_self=include_self
        )
        for at, (shape, reduction, include_self) in enumerate(kinds)
        for dtype in (FLOATS if every else (FLOATS[(at + turn) % len(FLOATS)],))
    }


def _turn(device: str, implementation: str) -> int:
    strategy = strategy_for(device)
    assert strategy is not None
    return list(strategy.implementations).index(implementation)


def _operands(problem: ScatterProblem, seed: int) -> tuple[Array, Array, Array]:
    """Data, index and updates; each place gets values of one kind, the last one none."""
    generator = np.random.default_rng(seed)
    batch, extent = problem.batch.constant, problem.extent.constant
    width, count = problem.slice.constant, problem.count.constant
    index = np.minimum(generator.zipf(1.3, (batch, count)) - 1, extent - 2)
    kinds = generator.integers(0, len(KINDS), (batch, extent, width))
    of_updates = np.take_along_axis(kinds, index[:, :, None], axis=1)
    of_data = np.where(generator.random(kinds.shape) < 0.7, np.minimum(kinds, 2), 3)
    return (
        draw(generator, problem.data_dtype, of_data.reshape(-1)),
        index.astype("int32"),
        draw(generator, problem.data_dtype, of_updates.reshape(-1)),
    )


def _permuted(index: Array, updates: Array, width: int, seed: int) -> tuple[Array, Array]:
    """The updates of each batch in another order."""
    generator = np.random.default_rng(seed)
    batch, count = index.shape
    order = np.argsort(generator.random((batch, count)), axis=1)
    moved = np.take_along_axis(updates.reshape(batch, count, width), order[:, :, None], axis=1)
    return np.take_along_axis(index, order, axis=1), moved.reshape(-1)


def _bits(array: Array) -> Array:
    return array.view(f"u{array.itemsize}")


def _expect(result: Array, expected: Array, what: str) -> None:
    wrong = np.flatnonzero(_bits(result) != _bits(expected))
    if wrong.size:
        at = wrong[0]
        found, wanted = (hex(int(_bits(each)[at])) for each in (result, expected))
        pytest.fail(f"{what}: {wrong.size} differ, the one at {at} is {found} and not {wanted}")


def _runner(device: str, implementation: str, problems: dict[str, ScatterProblem]) -> ProblemRunner:
    strategy = strategy_for(device)
    assert strategy is not None
    chosen = strategy.implementations[implementation]
    runner = ProblemRunner(device)
    for name, problem in list(problems.items()):
        if strategy.refusal(chosen, problem, runner.target) is None:
            runner.add(name, problem, implementation)
        else:
            del problems[name]
    if not problems:
        pytest.skip(f"{implementation} takes none of these problems")
    return runner


@EVERY_TYPE
def test_minimum_and_maximum(device: str, implementation: str, every: bool, tally: Tally) -> None:
    """Every implementation gives the bits of the reference, in whatever order the updates come."""
    problems = _problems(
        every,
        _turn(device, implementation),
        ("single", "max", True),
        ("single", "min", True),
        ("rows", "min", True),
        ("rows", "max", False),
        ("batches", "min", False),
    )
    problems["unique"] = _problem("float32", "max", "rows", count=SymbolicSize(20), unique=True)
    runner = _runner(device, implementation, problems)
    compared = 0
    for number, (name, problem) in enumerate(problems.items()):
        data, index, updates = _operands(problem, number)
        if problem.unique:
            index[:] = np.random.default_rng(0).permutation(22)[:20]
        expected = scatter_reference(problem, data, [index.reshape(-1)], updates)
        for order in orders(device):
            with in_order(order):
                result = runner.run(name, data, [index.reshape(-1)], updates)
            _expect(result, expected, name)
            index, updates = _permuted(index, updates, problem.slice.constant, number)
            compared += 1
    tally("results compared bit by bit", compared)


@EVERY_TYPE
def test_places_without_updates(
    device: str, implementation: str, every: bool, tally: Tally
) -> None:
    """What no update goes to keeps its bits, whatever is computed beside it."""
    problems = _problems(
        every,
        _turn(device, implementation),
        ("single", "add", True),
        ("single", "mul", False),
        ("rows", "mean", True),
        ("batches", "mul", True),
        ("batches", "update", True),
    )
    runner = _runner(device, implementation, problems)
    for number, (name, problem) in enumerate(problems.items()):
        data, index, updates = _operands(problem, number)
        batch, extent, width = (s.constant for s in (problem.batch, problem.extent, problem.slice))
        # Every other place at most.
        index = index // 2 * 2
        touched = np.zeros((batch, extent), bool)
        touched[np.arange(batch)[:, None], index] = True
        untouched = np.repeat(~touched.reshape(-1), width)
        result = runner.run(name, data, [index.reshape(-1)], updates)
        _expect(result[untouched], data[untouched], name)
    tally("results compared bit by bit", len(problems))


def test_sums_of_zeros(device: str, implementation: str, tally: Tally) -> None:
    """A sum is -0 where all that is added is, and only there."""
    problems = {
        "single": _problem("float32", "add", "single"),
        "rows": _problem("float32", "add", "rows", include_self=False),
        "mean": _problem("float32", "mean", "rows"),
    }
    runner = _runner(device, implementation, problems)
    for number, (name, problem) in enumerate(problems.items()):
        data, index, updates = _operands(problem, number)
        generator = np.random.default_rng(number)
        zeros = np.array([0.0, -0.0], "float32")
        data, updates = (
            generator.choice(zeros, each.size, p=(0.1, 0.9)) for each in (data, updates)
        )
        expected = scatter_reference(problem, data, [index.reshape(-1)], updates)
        assert set(np.signbit(expected)) == {True, False}
        result = runner.run(name, data, [index.reshape(-1)], updates)
        _expect(result, expected, name)
    tally("results compared bit by bit", len(problems))
