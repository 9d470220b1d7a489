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

pytestmark = pytest.mark.optimised

Array = np.ndarray[Any, Any]
Problems = dict[str, ScatterProblem]
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


def _add_to(runner: ProblemRunner, implementation: str, problems: Problems, part: str) -> Problems:
    """Add the problems that an implementation takes, by names that begin with ``part``."""
    strategy = strategy_for(runner.device)
    assert strategy is not None
    chosen = strategy.implementations[implementation]
    taken = {
        f"{part}_{name}": problem
        for name, problem in problems.items()
        if strategy.refusal(chosen, problem, runner.target) is None
    }
    for name, problem in taken.items():
        runner.add(name, problem, implementation)
    return taken


@EVERY_TYPE
@pytest.mark.turns(3)
def test_bits(device: str, implementation: str, every: bool, tally: Tally) -> None:
    """All that is compared is compiled as one module, since that is what takes the time."""
    turn, runner = _turn(device, implementation), ProblemRunner(device)
    extremes, sums, zeros = (
        _add_to(runner, implementation, problems, part)
        for part, problems in (
            ("extreme", _extremes(every, turn)),
            ("sum", _sums(every, turn)),
            ("zero", ZEROS),
        )
    )
    if not (extremes or sums or zeros):
        pytest.skip(f"{implementation} takes none of these problems")
    compared = _check_extremes(runner, extremes)
    _check_places_without_updates(runner, sums)
    _check_sums_of_zeros(runner, zeros)
    tally("results compared bit by bit", compared + len(sums) + len(zeros))


def _extremes(every: bool, turn: int) -> Problems:
    problems = _problems(
        every,
        turn,
        ("single", "max", True),
        ("single", "min", True),
        ("rows", "min", True),
        ("rows", "max", False),
        ("batches", "min", False),
    )
    unique = _problem("float32", "max", "rows", count=SymbolicSize(20), unique=True)
    return {**problems, "unique": unique}


def _check_extremes(runner: ProblemRunner, problems: Problems) -> int:
    """Minima and maxima have the bits of the reference, in whatever order the updates come."""
    compared = 0
    for number, (name, problem) in enumerate(problems.items()):
        data, index, updates = _operands(problem, number)
        if problem.unique:
            index[:] = np.random.default_rng(0).permutation(22)[:20]
        expected = scatter_reference(problem, data, [index.reshape(-1)], updates)
        for order in orders(runner.device):
            with in_order(order):
                result = runner.run(name, data, [index.reshape(-1)], updates)
            _expect(result, expected, name)
            index, updates = _permuted(index, updates, problem.slice.constant, number)
            compared += 1
    return compared


def _sums(every: bool, turn: int) -> Problems:
    return _problems(
        every,
        turn,
        ("single", "add", True),
        ("single", "mul", False),
        ("rows", "mean", True),
        ("batches", "mul", True),
        ("batches", "update", True),
    )


def _check_places_without_updates(runner: ProblemRunner, problems: Problems) -> None:
    """What no update goes to keeps its bits, whatever is computed beside it."""
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


ZEROS = {
    "single": _problem("float32", "add", "single"),
    "rows": _problem("float32", "add", "rows", include_self=False),
    "mean": _problem("float32", "mean", "rows"),
}


def _check_sums_of_zeros(runner: ProblemRunner, problems: Problems) -> None:
    """A sum is -0 where all that is added is, and only there."""
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
