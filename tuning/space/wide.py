"""Problems as users may pose them: any rank, axis, form of index, type and size.

The other grids grew with the default and resemble what it was made for. This one is drawn from
what the operators accept.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log2, prod
from random import Random
from typing import Any

from tvm_scatter.problem.reductions import REDUCTIONS, item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.symbolic_size import SymbolicSize

#: The most elements of an output, and of the updates.
_MOST_DATA, _MOST_UPDATES = 1 << 30, 1 << 27
#: The most elements of an axis behind the scattered one.
_MOST_INNER = 4096
#: The most bytes of a tensor.
_MOST_BYTES = 1 << 32
#: The most indices, and places of an index for each element: the host draws and checks them.
_MOST_INDICES, _MOST_PLACES = 1 << 23, 1 << 25
_COMMON = ("float32", "float32", "float16", "bfloat16", "int32", "int64", "float64")


def wide_problems(seed: int) -> Iterator[ScatterProblem]:
    """Endless static problems, drawn with a seed."""
    random = Random(seed)
    while True:
        posed = _draw(random)
        if _fits(posed):
            yield posed


def _size(random: Random, most: float) -> int:
    """From 1 to ``most``. Large ones are likelier: small ones are all one launch or two."""
    share = max(random.random(), random.random())
    return max(1, int(2 ** (share * log2(max(most, 1)))))


def _shape(random: Random, axis: int, rank: int, elements: int) -> list[int]:
    """A shape of about so many elements. Axes behind ``axis`` have at most 4 096."""
    shares = [random.expovariate(1) for _ in range(rank)]
    sides = [round(elements ** (share / sum(shares))) for share in shares]
    return [min(side, _MOST_INNER) if i > axis else side for i, side in enumerate(sides)]


def _draw(random: Random) -> ScatterProblem:
    rank = random.randint(1, 5)
    axis = random.randrange(rank)
    reduction = random.choice([*REDUCTIONS, "add", "add", "update"])
    dtypes = REDUCTIONS[reduction].dtypes
    usual = [dtype for dtype in _COMMON if dtype in dtypes]
    dtype = random.choice(usual) if random.random() < 0.8 else random.choice(dtypes)
    form = random.choice(_FORMS)
    # A row for each index leaves room for larger tensors, of which the host makes a few columns.
    rows = form in (_rows, _components)
    shape = _shape(random, axis, rank, _size(random, _MOST_DATA if rows else _MOST_PLACES))
    updates = _size(random, _MOST_UPDATES if rows else _MOST_INDICES)
    posed = form(random, shape, axis, updates)
    flags: dict[str, Any] = {
        "in_place": random.random() < 0.3,
        "deterministic": random.random() < 0.1,
        "include_self": REDUCTIONS[reduction].is_store or random.random() < 0.85,
        "wrap_negative": random.random() < 0.5,
    }
    if random.random() < 0.1:
        flags["unique"] = True
        posed["count"] = min(posed["count"], prod(posed["extents"]))
    return ScatterProblem(
        batch=SymbolicSize(posed["batch"]),
        extents=tuple(map(SymbolicSize, posed["extents"])),
        slice=SymbolicSize(posed["slice"]),
        count=SymbolicSize(posed["count"]),
        data_dtype=dtype,
        index_dtype=random.choice(["int64", "int64", "int32"]),
        reduction=reduction,
        index_batch=form is _elements and posed["batch"] > 1,
        index_slice=form is _elements and posed["slice"] > 1,
        **flags,
    )


def _elements(random: Random, shape: list[int], axis: int, updates: int) -> dict[str, Any]:
    """An index for each update, as ``scatter_elements`` has it: other axes are as in the data."""
    return _rows(random, shape, axis, updates)


def _rows(random: Random, shape: list[int], axis: int, updates: int) -> dict[str, Any]:
    """One index for all that lies before and behind the axis, as ``index_add`` has it."""
    batch, slice = prod(shape[:axis]), prod(shape[axis + 1 :])
    count = max(1, updates // (batch * slice))
    return {"batch": batch, "extents": (shape[axis],), "slice": slice, "count": count}


def _box(random: Random, shape: list[int], axis: int, updates: int) -> dict[str, Any]:
    """Updates smaller than the data in other axes: each addresses an element of all of it."""
    return {"batch": 1, "extents": (prod(shape),), "slice": 1, "count": updates}


def _components(random: Random, shape: list[int], axis: int, updates: int) -> dict[str, Any]:
    """Leading axes are addressed together, as ``index_put`` and ``scatter_nd`` have it."""
    slice = prod(shape[axis + 1 :])
    count = max(1, updates // slice)
    return {"batch": 1, "extents": tuple(shape[: axis + 1]), "slice": slice, "count": count}


_FORMS = (_elements, _rows, _rows, _box, _components)


def _fits(posed: ScatterProblem) -> bool:
    data, updates = posed.data_size.constant, posed.update_size.constant
    places = posed.batch.constant * posed.extent.constant
    places *= posed.slice.constant if posed.index_slice else min(posed.slice.constant, 7)
    return (
        data <= _MOST_DATA
        and updates <= _MOST_UPDATES
        and max(data, updates) * item_bytes(posed.data_dtype) <= _MOST_BYTES
        and posed.index_size.constant <= _MOST_INDICES
        and places <= _MOST_PLACES
        and posed.batch.constant * posed.count.constant * min(posed.slice.constant, 7)
        <= _MOST_PLACES
    )
