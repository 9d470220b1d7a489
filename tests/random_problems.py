"""Problems drawn at random, and operands for them, for property tests and for fuzzing.

Everything is drawn from a :class:`random.Random`, which may be hypothesis's.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from tvm_scatter import ScatterProblem
from tvm_scatter.problem.reductions import (
    DATA_DTYPES,
    FLOATS,
    INDEX_DTYPES,
    REDUCTIONS,
    ROUNDOFF,
    Rounding,
    numpy_dtype,
)
from tvm_scatter.problem.reference import destinations
from tvm_scatter.problem.scatter_problem import BOUNDS
from tvm_scatter.problem.sizes import Sizes
from tvm_scatter.problem.symbolic_size import SymbolicSize

Array = np.ndarray[Any, Any]
#: How indices are spread over the places there are.
SPREADS = ("even", "skewed", "one", "sorted")
#: Elements of data and of updates that a problem may have.
MOST = 20_000


def draw_problem(random: Random, most: int = MOST) -> tuple[ScatterProblem, dict[str, int]]:
    """A problem, symbolic or not, and the sizes of its symbols."""
    sizes = {
        "b": random.choice([1, 1, 1, 2, 3, 17]),
        "n": random.choice([1, 2, 5, 17, 31, 64, 256, 1000, 5000]),
        "m": random.choice([1, 3, 8]),
        "s": random.choice([1, 1, 1, 2, 3, 4, 5, 8, 16, 33, 64, 130, 260]),
        "k": random.choice([0, 1, 2, 7, 30, 70, 129, 500, 1025, 5000]),
    }
    # Code for a single entry, or for none, is other code.
    for name in sizes:
        if random.random() < 0.3:
            sizes[name] = random.choice([0, 1, 1, 1, 2, 2])
    components = random.choice([1, 1, 1, 2])
    if components == 1:
        sizes["m"] = 1
    while True:
        depth = sizes["n"] * (sizes["m"] if components == 2 else 1)
        lines = sizes["b"] * sizes["s"]
        largest = max(lines * depth, lines * sizes["k"])
        if largest <= most:
            break
        name = max(sizes, key=lambda name: sizes[name])
        sizes[name] //= 2
    symbolic = {name for name in sizes if random.random() < 0.6} if random.random() < 0.4 else set()
    # Where a size is known to be zero no kernel is asked.
    symbolic |= {name for name in sizes if sizes[name] == 0}

    def extent(name: str) -> SymbolicSize:
        if name not in symbolic:
            return SymbolicSize(sizes[name])
        if sizes[name] % 2 == 0 and sizes[name] and random.random() < 0.3:
            sizes[name] //= 2
            return SymbolicSize.product([2, name])
        return SymbolicSize.product([name])

    problem = ScatterProblem(
        batch=extent("b"),
        extents=tuple(extent(name) for name in ("n", "m")[:components]),
        slice=extent("s"),
        count=extent("k"),
        data_dtype=random.choice(DATA_DTYPES),
        index_dtype=random.choice([*INDEX_DTYPES, "int64", "int32"]),
        reduction=random.choice(sorted(REDUCTIONS)),
        index_batch=random.random() < 0.5,
        index_slice=random.random() < 0.4,
        interleaved=components > 1 and random.random() < 0.5,
        update_batch=random.random() < 0.8,
        update_count=random.random() < 0.8,
        update_slice=random.random() < 0.8,
        include_self=random.random() < 0.7,
        wrap_negative=random.random() < 0.5,
        unique=random.random() < 0.15,
        deterministic=random.random() < 0.5,
        bounds=random.choice(BOUNDS),
        in_place=random.random() < 0.4,
    )
    # As lowering has it: an axis of one position varies over nothing.
    for axis in ("batch", "slice"):
        if getattr(problem, axis).is_one:
            problem = replace(problem, **{f"index_{axis}": False, f"update_{axis}": True})
    if 0 in sizes.values():
        problem = replace(problem, bounds="drop")  # no index is in range
    if problem.data_dtype not in problem.reduces.dtypes:
        problem = replace(problem, data_dtype=random.choice(problem.reduces.dtypes))
    if problem.data_dtype in ROUNDOFF and problem.reduces.rounding is Rounding.SUM:
        # The same value again and again adds up to more than 16 bits hold exactly.
        problem = replace(problem, update_count=True)
    values = {name: sizes[name] for name in problem.symbols}
    if not _keeps_its_promise(problem.with_sizes(values)):
        problem = replace(problem, unique=False)
    return problem, values


def draw_operands(
    problem: ScatterProblem, seed: int, spread: str = "even"
) -> tuple[Array, list[Array], Array]:
    """Data, indices and updates of a static problem.

    Indices are negative and repeated where the problem allows it, and out of range under ``drop``.
    """
    generator = np.random.default_rng(seed)
    sizes = Sizes.of(problem)
    indices = _indices(generator, problem, sizes, spread)
    if problem.interleaved:
        indices = [np.stack(indices, axis=1)]
    updates = sizes.batch if problem.update_batch else 1
    updates *= sizes.count if problem.update_count else 1
    updates *= sizes.slice if problem.update_slice else 1
    return (
        _values(generator, problem, sizes.data_size),
        indices,
        _values(generator, problem, updates),
    )


def _keeps_its_promise(problem: ScatterProblem) -> bool:
    """Whether a static problem has as many places as updates that are promised to be unique."""
    sizes = Sizes.of(problem)
    return sizes.count <= min(np.iinfo(problem.index_dtype).max + 1, sizes.extent)


def _values(generator: np.random.Generator, problem: ScatterProblem, size: int) -> Array:
    """Small whole numbers, so that every order of adding or multiplying them gives the same."""
    name = problem.data_dtype
    dtype = numpy_dtype(name)
    if name == "bool":
        return generator.integers(0, 2, size).astype(bool)
    signed = not name.startswith("u")
    if problem.reduces.rounding is Rounding.PRODUCT:
        return generator.choice([-1, 1] if signed else [1, 3], size).astype(dtype)
    if name in FLOATS:
        # A walk of such steps stays where even bfloat16 is exact.
        result = generator.integers(-1, 2, size).astype(dtype)
        if problem.reduces.rounding is Rounding.NONE:
            result[generator.random(size) < 0.1] = np.nan
        # In a sum one of them hides whatever else goes to its place.
        is_sum = problem.reduces.rounding is Rounding.SUM
        share = 1 / max(size, 50) if is_sum else 0.02
        result[generator.random(size) < share] = -np.inf
        return result
    limits = np.iinfo(name)
    if generator.random() < 0.3:
        return generator.integers(limits.min, limits.max, size, dtype, endpoint=True)
    return generator.integers(-3 if signed else 0, 4, size).astype(dtype)


def _indices(
    generator: np.random.Generator, problem: ScatterProblem, sizes: Sizes, spread: str
) -> list[Array]:
    """One array for each component."""
    shape = (
        sizes.batch if problem.index_batch else 1,
        sizes.count,
        sizes.slice if problem.index_slice else 1,
    )
    limits = np.iinfo(problem.index_dtype)
    if problem.unique:
        most = min(sizes.extent, limits.max + 1)
        linear = generator.permuted(
            np.broadcast_to(np.arange(most)[None, :, None], (shape[0], most, shape[2])), axis=1
        )[:, : sizes.count]
        places = list(np.unravel_index(linear, sizes.extents))
    else:
        places = [
            np.minimum(_spread(generator, spread, shape, extent), limits.max)
            for extent in sizes.extents
        ]
    result = []
    for place, extent in zip(places, sizes.extents, strict=True):
        if problem.wrap_negative and limits.min < 0:
            wrapped = (generator.random(shape) < 0.3) & (place - extent >= limits.min)
            place = np.where(wrapped, place - extent, place)
        if problem.bounds == "drop":
            bad = [extent, -extent - 1, extent + 7, 2**31, -(2**31), 2**40, limits.min, limits.max]
            bad = [b for b in bad if limits.min <= b <= limits.max and not -extent <= b < extent]
            if bad:
                place = np.where(generator.random(shape) < 0.1, generator.choice(bad, shape), place)
        result.append(place.astype(problem.index_dtype).reshape(-1))
    return result


def _spread(
    generator: np.random.Generator, spread: str, shape: tuple[int, ...], extent: int
) -> Array:
    if spread == "one":
        return np.full(shape, generator.integers(0, max(extent, 1)), np.int64)
    if spread == "skewed":
        return np.minimum(generator.zipf(1.5, shape) - 1, max(extent - 1, 0))
    drawn = generator.integers(0, max(extent, 1), shape)
    return np.sort(drawn, axis=1) if spread == "sorted" else drawn


def explains(
    problem: ScatterProblem, data: Array, indices: list[Array], updates: Array, result: Array
) -> bool:
    """Whether a plain update may end like this: each place holds one of the updates it got."""
    sizes = Sizes.of(problem)
    place, valid = destinations(problem, indices)
    b, _, s = np.ogrid[: sizes.batch, : sizes.count, : sizes.slice]
    box = (sizes.batch, sizes.count, sizes.slice)
    valid = np.broadcast_to(valid, box).reshape(-1)
    at = np.broadcast_to((b * sizes.extent + place) * sizes.slice + s, box).reshape(-1)[valid]
    shape = tuple(
        size if getattr(problem, f"update_{axis}") else 1
        for axis, size in zip(("batch", "count", "slice"), box, strict=True)
    )
    given = np.broadcast_to(updates.reshape(shape), box).reshape(-1)[valid]
    found, before = result.reshape(-1), data.reshape(-1)
    same = _bits(given) == _bits(found[at])
    fine = _bits(before) == _bits(found)
    fine[at] = False
    fine[at[same]] = True
    return bool(fine.all())


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
