"""What a softmax knows of each row: the greatest element, and the sum of all exponentials."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

#: The attribute of a function that computes these numbers, and nothing else.
SUMS_EXPONENTIALS = "tvm_scatter.sums_exponentials"


def wide_type(dtype: str) -> str:
    """The type that a softmax of numbers of a type is computed in."""
    return "float64" if dtype == "float64" else "float32"


def exponential_sums(values: te.Tensor, with_distances: bool) -> list[te.Tensor]:
    """Numbers of the rows of a tensor, each in a tensor whose last axis has one place.

    Parameters
    ----------
    values : te.Tensor
        Floats. Its last axis is that of the rows.
    with_distances : bool
        Whether the sum of all distances is wanted, too.

    Returns
    -------
    numbers : list of te.Tensor
        The greatest element; the logarithm of the sum of the exponentials of all elements, less the
        greatest; and the sum of all elements, less the greatest.
    """
    *outer, width = values.shape
    wide = wide_type(str(values.dtype))
    shape = (*outer, 1)

    def element(at: Any, place: Any) -> Any:
        return values(*at[:-1], place).astype(wide)

    def reduced(combine: Any, term: Any, name: str) -> te.Tensor:
        place = te.reduce_axis((0, width), name="place")
        return te.compute(shape, lambda *at: combine(term(at, place), axis=place), name=name)

    greatest = reduced(te.max, element, "greatest")

    def distance(at: Any, place: Any) -> Any:
        return element(at, place) - greatest(*at)

    total = reduced(te.sum, lambda at, place: tirx.exp(distance(at, place)), "total")
    logarithm = te.compute(shape, lambda *at: tirx.log(total(*at)), name="logarithm")
    numbers = [greatest, logarithm]
    return [*numbers, reduced(te.sum, distance, "distances")] if with_distances else numbers
