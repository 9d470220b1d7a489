"""The table of reductions: one record holds all facts about a reduction, data types included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from tvm_scatter.errors import ScatterError

HALVES = ("float16", "bfloat16")
FLOATS = (*HALVES, "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DATA_DTYPES = (*FLOATS, *INTEGERS, "bool")
#: The data types in which implementations read indices.
INDEX_DTYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")


class Rounding(Enum):
    """How combining floating-point numbers rounds."""

    #: It does not round: the result is one of the values, or a function of their bits.
    NONE = "none"
    #: It rounds as a sum does: :func:`sum_error_bound`.
    SUM = "sum"
    #: It rounds as a product does.
    PRODUCT = "product"


@dataclass(frozen=True)
class Reduction:
    """A reduction: how an update is combined with the value at its destination.

    The device code for each kind of target is looked up by ``combiner``.

    Parameters
    ----------
    name : str
        The name in a :class:`~tvm_scatter.problem.ScatterProblem`.
    aliases : tuple of str
        The names that front ends use.
    combiner : str
        The name of the device code that combines two values.
    ufunc : numpy.ufunc, optional
        NumPy's function that combines two values; ``None`` for a store.
    start : callable, optional
        Returns, for a data type, the identity: the value that leaves every other unchanged.
        ``None`` if there is none.
    rounding : Rounding
        How floating-point results are rounded.
    is_sum : bool
        Whether the result is the sum of the combined values.
    is_store : bool
        Whether an update replaces the value at its destination.
    needs_count : bool
        Whether the combined value is divided by the number of values.
    selects_least, selects_greatest : bool
        Whether the result is the least, or the greatest, of the combined values.
    has_atomic : bool
        Whether GPUs have an atomic instruction for values of 32 bits or more.
    has_vector_atomic : bool
        Whether GPUs have an atomic instruction for several neighbouring floats of up to 32 bits.
    dtypes : tuple of str
        The data types that it supports.
    """

    name: str
    aliases: tuple[str, ...]
    combiner: str
    ufunc: np.ufunc | None = None
    start: Callable[[str], float | int] | None = None
    rounding: Rounding = Rounding.NONE
    is_sum: bool = False
    is_store: bool = False
    needs_count: bool = False
    selects_least: bool = False
    selects_greatest: bool = False
    has_atomic: bool = True
    has_vector_atomic: bool = False
    dtypes: tuple[str, ...] = DATA_DTYPES

    @property
    def is_extreme(self) -> bool:
        """Whether it is a minimum or a maximum."""
        return self.selects_least or self.selects_greatest

    @property
    def merges(self) -> bool:
        """Whether partial results can be combined like single updates."""
        return not (self.is_store or self.needs_count)

    def reduces_into_data(self, include_self: bool) -> bool:
        """Whether updates can be combined directly into a copy of the data."""
        return self.is_store or (include_self and not self.needs_count)

    def is_order_free(self, dtype: str) -> bool:
        """Whether every order of the updates gives the same bits.

        Minimum and maximum are exact and follow a total order (:meth:`last_in_order`). Integer sums
        and products wrap around. Sums and products of floats round differently in every order.
        """
        if self.is_store:
            return False
        return self.rounding is Rounding.NONE or dtype not in FLOATS

    def identity(self, dtype: str) -> float | int:
        """The value that leaves any other unchanged, for reductions that exclude the data.

        For ``mean`` it is that of the sum. ``update`` has none.
        """
        if self.start is None:
            raise ScatterError(f"scatter: reduction {self.name!r} has no identity.")
        return self.start(dtype)

    def last_in_order(self, dtype: str) -> int:
        """The bits of the NaN that is the minimum or maximum of updates with a NaN among them.

        Minimum and maximum of floats follow IEEE 754's total order, in which -0 comes before +0. So
        they do not depend on the order of the updates. Every NaN among the updates counts as the
        value at the end of that order: all bits set, for ``max`` all but the sign. A NaN in the
        data stays as it is, if the data takes part.

        Returns
        -------
        bits : int
            As a signed integer of the width of the type.
        """
        return -1 if self.selects_least else int(2 ** (8 * item_bytes(dtype) - 1) - 1)


def _zero(dtype: str) -> float | int:
    # 0 + -0 is 0, but -0 + x is x for every x.
    return -0.0 if dtype in FLOATS else 0


def _one(_dtype: str) -> int:
    return 1


def _greatest(dtype: str) -> float | int:
    if dtype in FLOATS:
        return float("inf")
    return 1 if dtype == "bool" else int(np.iinfo(dtype).max)


def _least(dtype: str) -> float | int:
    if dtype in FLOATS:
        return float("-inf")
    return 0 if dtype == "bool" else int(np.iinfo(dtype).min)


_ADD = Reduction(
    "add", ("sum",), "add", np.add, _zero, Rounding.SUM, is_sum=True, has_vector_atomic=True
)
REDUCTIONS = {
    reduction.name: reduction
    for reduction in (
        Reduction("update", ("none", "copy"), "update", is_store=True),
        _ADD,
        Reduction(
            "mul",
            ("prod", "multiply"),
            "mul",
            np.multiply,
            _one,
            Rounding.PRODUCT,
            has_atomic=False,
        ),
        Reduction("min", ("amin",), "min", np.minimum, _greatest, selects_least=True),
        Reduction("max", ("amax",), "max", np.maximum, _least, selects_greatest=True),
        replace(_ADD, name="mean", aliases=(), is_sum=False, needs_count=True),
    )
}


def canonical_reduction(name: str, operator: str) -> str:
    """The name of a reduction in this table, from any front end's name for it.

    Raises
    ------
    ScatterError
        If no reduction has that name.
    """
    names = {
        known: reduction.name
        for reduction in REDUCTIONS.values()
        for known in (reduction.name, *reduction.aliases)
    }
    if not isinstance(name, str) or name not in names:
        raise ScatterError(
            f"{operator}: unknown reduction {name!r}; it must be one of {', '.join(sorted(names))}."
        )
    return names[name]


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy type for a data type, bfloat16 included."""
    return np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)


@cache
def item_bytes(dtype: str) -> int:
    """Bytes of one element."""
    return numpy_dtype(dtype).itemsize


#: The unit roundoff of each floating-point type.
ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def sum_error_bound(dtype: str, additions: Any, magnitude: Any, exact: Any, wide: bool) -> Any:
    """The largest error of a floating-point sum without overflow or subnormal numbers.

    Adding n values in any order with unit roundoff u is off by at most n u / (1 - n u) of the sum
    of magnitudes (Higham, "Accuracy and Stability of Numerical Algorithms", section 4.2).

    Parameters
    ----------
    additions : number or array
        The number of updates of the destination.
    magnitude, exact : number or array
        The sum of magnitudes, the initial value included, and the exact sum.
    wide : bool
        Whether a 16-bit sum is made in float32 and rounded once, or rounded after every addition.
    """
    unit = ROUNDOFF[dtype]
    inner = ROUNDOFF["float32"] if wide and unit > ROUNDOFF["float32"] else unit
    share = np.asarray(additions) * inner
    with np.errstate(divide="ignore"):
        off = np.where(share < 1, share / np.abs(1 - share), np.inf) * magnitude
    return off if inner == unit else off + unit * (np.abs(exact) + off)


def check_dtypes(operator: str, reduction: str, data: str, index: str, updates: str) -> None:
    """Raise if the operator does not support the data types.

    Raises
    ------
    ScatterError
        If the reduction does not support the data type, the index is not an integer, or data and
        updates have different types.
    """
    if data not in DATA_DTYPES:
        raise ScatterError(
            f"{operator}: data of type {data} is not supported; it must be one of "
            f"{', '.join(DATA_DTYPES)}."
        )
    dtypes = REDUCTIONS[reduction].dtypes
    if data not in dtypes:
        raise ScatterError(
            f"{operator}: reduction {reduction!r} of data of type {data} is not supported; it must "
            f"be one of {', '.join(dtypes)}."
        )
    check_index_dtype(operator, index)
    if updates != data:
        raise ScatterError(
            f"{operator}: updates of type {updates} do not match data of type {data}; cast one of "
            "them."
        )


def check_index_dtype(operator: str, index: str) -> None:
    """Raise if the operator does not take indices of a data type.

    Raises
    ------
    ScatterError
        If it is no type of integers.
    """
    taken = (*INDEX_DTYPES, "uint64")
    if index not in taken:
        raise ScatterError(
            f"{operator}: an index of type {index} is not supported; it must be one of "
            f"{', '.join(taken)}."
        )
