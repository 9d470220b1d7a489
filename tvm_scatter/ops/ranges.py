"""Whether the ranges that ``copy_ranges`` copies lie inside of its tensors."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax, tirx

from tvm_scatter.errors import ScatterError

from .shapes import static_shape


def check_ranges(
    operator: str,
    data: relax.Expr,
    sources: Sequence[relax.Expr],
    ranges: Sequence[Sequence[int]],
    axis: int,
) -> None:
    """Check ranges (source, first position in it, first position in the data, length).

    Raises
    ------
    ScatterError
        If a range is outside of its source or of the data, as far as their sizes are known, or if
        two ranges overlap in the data.
    """
    taken: list[tuple[int, int]] = []
    for at, (source, begin, place, length) in enumerate(ranges):
        what = f"{operator}: ranges[{at}]"
        if not 0 <= source < len(sources):
            raise ScatterError(f"{what} copies source {source}, but there are {len(sources)}.")
        _check(f"{what} copies from source {source}", begin, length, sources[source], axis)
        _check(f"{what} writes to the data", place, length, data, axis)
        if any(place < end and first < place + length for first, end in taken):
            raise ScatterError(f"{what} overlaps in the data with a range before it.")
        taken.append((place, place + length))


def _check(what: str, first: int, length: int, tensor: relax.Expr, axis: int) -> None:
    size = (static_shape(tensor) or [None] * (axis + 1))[axis]
    known = isinstance(size, int | tirx.IntImm)
    if first < 0 or length < 0 or (known and first + length > int(size)):
        extent = f"; it has {int(size)} along axis {axis}" if known else ""
        raise ScatterError(f"{what} {length} positions from {first} on{extent}.")
