"""Grids of problems: one for the shipped log, and others to judge what was learned from it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.tasks import Task

from .wide import wide_problems
from .workloads import WORKLOADS

_K = 1 << 10
_M = 1 << 20
#: Elements of data and of updates that a problem may have.
_MOST = 1 << 26
#: So many of either seed; the second were measured after the default had been made.
_HELD_OUT = {2026: 60, 2028: 60}
#: And of any other seed.
_DRAWN = 100
#: And of any seed of a wide grid.
_WIDE = 400
#: Problems of no special sizes in the shipped grid: regular ones alone leave a rule without
#: neighbours for most sizes.
_DENSE = 320
#: And those of them whose output is large and in place, where moving all of it for few updates is
#: what a choice can lose most by.
_LARGE_IN_PLACE = 128
_LARGE = _M >> 2
#: The share of random problems that is in place, where nobody asks for another one.
_IN_PLACE = 0.2
#: A run goes over a grid so many times, each from small to large: one that is stopped has problems
#: of every size.
_PASSES = 4


def grid(name: str) -> list[Task]:
    """The problems of a grid.

    Parameters
    ----------
    name : str
        ``shipped`` holds the benchmark's problems as well. ``held-out`` and ``random:SEED`` hold
        problems of arbitrary sizes that no grid named before them holds. A fifth of them is in
        place; of ``random:SEED:PERCENT`` so many in a hundred. ``wide:SEED`` holds problems of any
        rank, axis, form of index, type and size.

    Raises
    ------
    ScatterError
        If there is no grid of that name.
    """
    grids: dict[str, Callable[[], Iterator[ScatterProblem]]] = {
        "shipped": _shipped,
        "held-out": _held_out,
    }
    wide = re.fullmatch(r"wide:(\d{1,18})", name)
    seed = re.fullmatch(r"random:(\d{1,18})(?::(\d\d?|100))?", name)
    if wide is None and seed is None and name not in grids:
        there = ", ".join((*grids, "random:SEED", "random:SEED:PERCENT", "wide:SEED"))
        raise ScatterError(f"unknown grid {name!r}; there is: {there}.")
    found: Iterator[ScatterProblem]
    if wide is not None:
        found = islice(wide_problems(int(wide[1])), _WIDE)
    elif seed is None:
        found = grids[name]()
    else:
        share = _IN_PLACE if seed[2] is None else int(seed[2]) / 100
        found = iter(drawn(int(seed[1]), _DRAWN, share))
    problems = sorted(dict.fromkeys(found), key=lambda posed: posed.elements)
    return [Task(problem) for i in range(_PASSES) for problem in problems[i::_PASSES]]


def problem(
    extent: int | tuple[int, ...],
    slice: int,
    count: int,
    reduction: str = "add",
    dtype: str = "float32",
    batch: int = 1,
    **flags: Any,
) -> ScatterProblem:
    """A problem as an imported model would pose it."""
    extents = extent if isinstance(extent, tuple) else (extent,)
    return ScatterProblem(
        batch=SymbolicSize(batch),
        extents=tuple(map(SymbolicSize, extents)),
        slice=SymbolicSize(slice),
        count=SymbolicSize(count),
        data_dtype=dtype,
        index_dtype="int64",
        reduction=reduction,
        **{"index_batch": batch > 1, "wrap_negative": False, **flags},
    )


def _fits(posed: ScatterProblem) -> bool:
    return posed.data_size.constant <= _MOST and posed.update_size.constant <= _MOST


def _shipped() -> Iterator[ScatterProblem]:
    yield from filter(_fits, _sums())
    yield from filter(_fits, _kinds())
    yield from filter(_fits, _batches())
    yield from filter(_fits, _promises())
    yield from filter(_fits, _in_place())
    yield from _few_rows()
    yield from islice(_random(2027), _DENSE)
    large = (posed for posed in _random(2032, 1.0) if posed.data_size.constant >= _LARGE)
    yield from islice(large, _LARGE_IN_PLACE)
    yield from (workload.problem() for workload in WORKLOADS)


def _sums() -> Iterator[ScatterProblem]:
    for extent in (16, _K, 64 * _K, 4 * _M):
        for width in (1, 16, 128, _K, 4 * _K):
            for count in (1, 256, 4 * _K, 64 * _K, _M, 16 * _M):
                yield problem(extent, width, count)


def _kinds() -> Iterator[ScatterProblem]:
    kinds = (
        ("update", "float32"),
        ("max", "float32"),
        ("min", "bfloat16"),
        ("mul", "float32"),
        ("mean", "float32"),
        ("add", "bfloat16"),
        ("add", "float16"),
        ("add", "int64"),
        ("update", "bfloat16"),
        ("max", "int64"),
    )
    for reduction, dtype in kinds:
        for extent in (256, 64 * _K):
            for width in (1, 128):
                for count in (256, 64 * _K, _M):
                    yield problem(extent, width, count, reduction, dtype)
    for count in (64 * _K, _M):
        yield problem(16, 16, count, "update")


def _batches() -> Iterator[ScatterProblem]:
    for reduction in ("add", "max", "update"):
        for batch, extent, count in ((64, _K, _K), (_K, 4 * _K, 4 * _K), (_K, 32 * _K, 64)):
            yield problem(extent, 1, count, reduction, batch=batch)
        yield problem(_K, 64, _K, reduction, batch=32)
        yield problem(_K, 64, _K, reduction, batch=32, index_slice=True)
        yield problem(256, 16, 4 * _K, reduction, batch=64, index_batch=False)
        yield problem((64, 64), 16, 64 * _K, reduction)
        yield problem((16, 64, 64), 1, 64 * _K, reduction, interleaved=True)


def _promises() -> Iterator[ScatterProblem]:
    for reduction in ("update", "add"):
        for extent, width, count in (
            (_K, 1, 256), (_M, 1, _M), (64 * _K, 128, 16 * _K), (_K, 4 * _K, 256),
            (64 * _K, 16, 256),
        ):  # fmt: skip
            yield problem(extent, width, count, reduction, unique=True)
    for reduction, extent, width, count in (
        ("add", 256, 1, _M), ("add", 64 * _K, 128, _M), ("add", 64 * _K, 1, _M),
        ("add", 16, 128, 64 * _K), ("add", _K, 16, 256), ("update", _K, 1, 64 * _K),
        ("update", 64 * _K, 128, _M), ("update", 64 * _K, 1, 256), ("update", 16, _K, 4 * _K),
    ):  # fmt: skip
        yield problem(extent, width, count, reduction, deterministic=True)


def _in_place() -> Iterator[ScatterProblem]:
    for reduction, dtype in (("add", "float32"), ("update", "float32"), ("add", "bfloat16")):
        for extent, width in ((_K, 1), (_K, 128), (64 * _K, 128), (4 * _M, 1)):
            for count in (1, 256, 64 * _K, _M):
                yield problem(extent, width, count, reduction, dtype, in_place=True)


def _few_rows() -> Iterator[ScatterProblem]:
    """Many plain updates of few rows, where any of them may win."""
    for extent in (4, 16, 64):
        for width in (1, 16, 128):
            for count in (16 * _K, 256 * _K):
                yield problem(extent, width, count, "update")


def _held_out() -> Iterator[ScatterProblem]:
    """Problems of arbitrary sizes, none of which is in the shipped grid."""
    shipped = set(_shipped())
    for seed, count in _HELD_OUT.items():
        yield from islice((posed for posed in _random(seed) if posed not in shipped), count)


def drawn(seed: int, count: int, in_place: float = _IN_PLACE) -> list[ScatterProblem]:
    """Problems of arbitrary sizes that neither ``shipped`` nor ``held-out`` holds.

    Parameters
    ----------
    in_place : float
        The share of them that is in place.
    """
    known = {*_shipped(), *_held_out()}
    return list(islice((posed for posed in _random(seed, in_place) if posed not in known), count))


def _random(seed: int, in_place: float = _IN_PLACE) -> Iterator[ScatterProblem]:
    generator = random.Random(seed)

    def size(low: int, high: int) -> int:
        return round(low * (high / low) ** generator.random())

    while True:
        dtype = generator.choice(["float32", "float32", "float32", "bfloat16", "float16", "int64"])
        reduction = generator.choice(["add", "add", "add", "update", "max", "mean", "min", "mul"])
        batch = generator.choice([1, 1, 1, size(2, 1024)])
        width = generator.choice([1, 1, size(2, 64), 8 * size(1, 256)])
        flags: dict[str, Any] = {"in_place": generator.random() < in_place}
        flags["deterministic"] = generator.random() < 0.15
        flags["unique"] = generator.random() < 0.1
        extent, count = size(8, 16 * _M), size(1, 16 * _M)
        if flags["unique"]:
            count = min(count, extent)
        posed = problem(extent, width, count, reduction, dtype, batch, **flags)
        if _fits(posed):
            yield posed
