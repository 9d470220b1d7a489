"""Operands for measuring a problem, and the answer: valid by construction, exact where possible.

Rows repeat a few columns, so that a tensor of any width comes from a small one and its answer from
the reference on the small one. Values are small whole numbers: as long as an element's magnitudes
add up to less than the type can count exactly, every order of summation gives the same bits, and a
candidate must give them. Beyond that, the error is bounded as for any order with each sum rounded
(Higham, "Accuracy and Stability of Numerical Algorithms", section 4.2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.reductions import FLOATS, ROUNDOFF, Rounding, numpy_dtype
from tvm_scatter.problem.reference import destinations, scatter_reference
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes
from tvm_scatter.problem.symbolic_size import SymbolicSize

from .distributions import draw_indices

Array = np.ndarray[Any, Any]

#: Columns that rows repeat: odd, so that a misplaced vector of 2, 4 or 8 elements does not pass.
_COLUMNS = 7


@dataclass(frozen=True)
class Circumstance:
    """Where the indices of a measurement come from.

    Parameters
    ----------
    distribution : str
        A key of :data:`~tvm_scatter.tuning.operands.distributions.DISTRIBUTIONS` or an
        ``.npy`` file.
    seed : int
        Of the indices and of the values.
    """

    distribution: str = "uniform"
    seed: int = 0


@dataclass(frozen=True)
class Inputs:
    """The operands of a static problem, narrowed to ``columns`` columns, and its answer.

    Attributes
    ----------
    columns : int
        Elements of a narrow row. Column ``s`` of a full row is column ``s % columns`` of it.
    indices : list of numpy.ndarray
        Complete, flat: one for each component, or one for all if the problem is interleaved.
    data, updates : numpy.ndarray
        Flat and narrow.
    expected, poison : numpy.ndarray
        The answer, and values that differ from it everywhere; flat and narrow.
    allowed : numpy.ndarray
        float32: how far an element of the answer may be off.
    """

    columns: int
    indices: list[Array]
    data: Array
    updates: Array
    expected: Array
    poison: Array
    allowed: Array

    def save(self, path: Path) -> None:
        """Write the arrays to an ``.npz`` file, as bytes where NumPy does not know their type."""
        arrays: dict[str, Any] = {f"index{i}": index for i, index in enumerate(self.indices)}
        for name in ("data", "updates", "expected", "poison"):
            arrays[name] = getattr(self, name).view(np.uint8)
        np.savez(path, columns=np.int64(self.columns), allowed=self.allowed, **arrays)

    @staticmethod
    def load(path: Path, dtype: str) -> Inputs:
        """Read what :meth:`save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            indices = [file[f"index{i}"] for i in range(len(file.files) - 6)]
            values = {
                name: file[name].view(numpy_dtype(dtype))
                for name in ("data", "updates", "expected", "poison")
            }
            return Inputs(
                columns=int(file["columns"]), indices=indices, allowed=file["allowed"], **values
            )


def narrow_columns(problem: ScatterProblem) -> int:
    """Columns of the narrow operands of a static problem."""
    width = int(Sizes.of(problem).slice)
    return width if problem.index_slice else min(width, _COLUMNS)


def index_sizes(problem: ScatterProblem) -> list[int]:
    """Elements of each index tensor of a static problem."""
    sizes = Sizes.of(problem)
    entries = sizes.count
    entries *= sizes.batch if problem.index_batch else 1
    entries *= sizes.slice if problem.index_slice else 1
    if problem.interleaved:
        return [entries * len(problem.extents)]
    return [entries] * len(problem.extents)


def update_size(problem: ScatterProblem) -> int:
    """Elements of the updates of a static problem before broadcasting."""
    sizes = Sizes.of(problem)
    return int(
        (sizes.batch if problem.update_batch else 1)
        * (sizes.count if problem.update_count else 1)
        * (sizes.slice if problem.update_slice else 1)
    )


def draw_components(problem: ScatterProblem, circumstance: Circumstance) -> list[Array]:
    """Valid index tensors for a static problem, flat."""
    sizes = Sizes.of(problem)
    components = len(problem.extents)
    entries = index_sizes(problem)[0] // (components if problem.interleaved else 1)
    dtype = problem.index_dtype
    place = _places(problem, circumstance, int(sizes.extent), entries)
    digits: list[Array] = []
    for extent in reversed(sizes.extents):
        digits.append(place % extent)
        place //= extent
    drawn = [digit.astype(dtype) for digit in reversed(digits)]
    return [np.stack(drawn, axis=-1).reshape(-1)] if problem.interleaved else drawn


def _places(
    problem: ScatterProblem, circumstance: Circumstance, extent: int, entries: int
) -> Array:
    count = Sizes.of(problem).count
    if circumstance.distribution != "permutation" or entries == count:
        return draw_indices(circumstance.distribution, extent, entries, "int64", circumstance.seed)
    # One permutation for each line along the axis: repeats across lines are no repeats.
    lines = entries // count
    generator = np.random.default_rng(circumstance.seed)
    rounds = -(-count // extent)
    keys = generator.random((lines, rounds, extent)).argsort(axis=-1).reshape(lines, -1)[:, :count]
    if problem.index_slice:
        slices = Sizes.of(problem).slice
        keys = keys.reshape(-1, slices, count).transpose(0, 2, 1)
    return keys.reshape(-1).astype(np.int64)


def make_inputs(problem: ScatterProblem, circumstance: Circumstance) -> Inputs:
    """Operands and answer for a static problem.

    Raises
    ------
    ScatterError
        If the distribution has no valid indices for the problem, or repeats destinations that the
        problem promises to be unique.
    """
    indices = draw_components(problem, circumstance)
    sizes = Sizes.of(problem)
    columns = narrow_columns(problem)
    narrow = replace(problem, slice=SymbolicSize(columns), bounds="drop", in_place=False)
    place, _ = destinations(narrow, indices)
    _check_promises(narrow, place, circumstance)
    generator = np.random.default_rng(circumstance.seed + 1)
    dtype = numpy_dtype(problem.data_dtype)
    shape = (int(sizes.batch), int(sizes.extent), columns)
    data = _values(generator, problem, shape).astype(dtype).reshape(-1)
    updates = _updates(generator, narrow, place).astype(dtype).reshape(-1)
    with np.errstate(all="ignore"):
        expected = scatter_reference(narrow, data, indices, updates)
    allowed = _allowed(narrow, indices, expected)
    poison = ~expected if expected.dtype == bool else (expected + dtype.type(1)).astype(dtype)
    # Where adding one is lost to rounding or to infinity, zero is something else.
    poison = np.where(poison == expected, np.zeros_like(expected), poison)
    return Inputs(columns, indices, data, updates, expected, poison, allowed)


def _check_promises(narrow: ScatterProblem, place: Array, circumstance: Circumstance) -> None:
    if not narrow.unique:
        return
    lines = np.moveaxis(place, 1, -1).reshape(-1, place.shape[1])
    ordered = np.sort(lines, axis=-1)
    if bool((ordered[:, 1:] == ordered[:, :-1]).any()):
        raise ScatterError(
            f"tuning: distribution {circumstance.distribution!r} repeats destinations, and the "
            f"problem [{narrow}] promises that none does; use permutation."
        )


def _values(
    generator: np.random.Generator, problem: ScatterProblem, shape: tuple[int, ...]
) -> Array:
    dtype, rounding = problem.data_dtype, problem.reduces.rounding
    if dtype == "bool":
        return generator.integers(0, 2, shape)
    if rounding is Rounding.PRODUCT:
        # Products of these neither overflow nor round.
        units = (1, 3) if dtype.startswith("u") else (-1, 1) if dtype in FLOATS else (-1, 1, 3)
        return generator.choice(np.array(units), shape)
    low, high = (-1, 1) if rounding is Rounding.SUM else (-60, 60)
    return generator.integers(0 if dtype.startswith("u") else low, high + 1, shape)


def _updates(generator: np.random.Generator, narrow: ScatterProblem, place: Array) -> Array:
    sizes = Sizes.of(narrow)
    shape = (
        int(sizes.batch) if narrow.update_batch else 1,
        int(sizes.count) if narrow.update_count else 1,
        int(sizes.slice) if narrow.update_slice else 1,
    )
    any_may_win = narrow.reduces.is_store and not (narrow.unique or narrow.needs_order)
    if not any_may_win:
        return _values(generator, narrow, shape)
    # Of several updates of one destination any may win, so all of them carry one value.
    if place.shape[0] > shape[0] or place.shape[2] > shape[2]:
        place = np.zeros((1, 1, 1), np.int64)
    columns = np.arange(shape[2]).reshape(1, 1, -1)
    values = (place * 31 + columns * 17) % 61
    if not narrow.update_count:
        values = values[:, :1] * 0 + columns
    return np.broadcast_to(values, shape)


def _allowed(narrow: ScatterProblem, indices: list[Array], expected: Array) -> Array:
    dtype, reduces = narrow.data_dtype, narrow.reduces
    if dtype not in FLOATS or reduces.rounding is not Rounding.SUM:
        return np.zeros(expected.shape, np.float32)
    # Whole numbers are exact up to here.
    limit = 1 / ROUNDOFF[dtype]
    rounding = np.abs(expected.astype(np.float64)) * (2 / limit if reduces.needs_count else 0.0)
    # Every value is -1, 0 or 1, so magnitudes add up to the number of additions at most.
    additions = _additions(narrow, indices)
    bound = np.where(additions > limit, additions * (additions / limit), 0.0)
    bound = np.repeat(bound, narrow.slice.constant if not narrow.index_slice else 1)
    return (bound + rounding).astype(np.float32)


def _additions(narrow: ScatterProblem, indices: list[Array]) -> Array:
    """How many values are added up in each destination, the data's own included."""
    sizes = Sizes.of(narrow)
    place, _ = destinations(narrow, indices)
    batch, _, columns = np.ogrid[: sizes.batch, :1, : place.shape[2]]
    at = (batch * int(sizes.extent) + place) * place.shape[2] + columns
    return 1 + np.bincount(
        at.reshape(-1), minlength=int(sizes.batch * sizes.extent) * place.shape[2]
    )
