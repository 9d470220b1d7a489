"""The table of reductions and of the data types that each takes: the one place for both facts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tvm_scatter.errors import ScatterError

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DATA_DTYPES = (*FLOATS, *INTEGERS, "bool")
#: The types that implementations read indices in.
INDEX_DTYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")


@dataclass(frozen=True)
class Reduction:
    """How an update is combined with what stands at its destination.

    Parameters
    ----------
    name : str
        The name in a :class:`~tvm_scatter.problem.ScatterProblem`.
    aliases : tuple of str
        What the front ends call it.
    order_matters : bool
        Whether the result depends on the order of the updates even in exact arithmetic.
    """

    name: str
    aliases: tuple[str, ...]
    order_matters: bool = False


REDUCTIONS = {
    reduction.name: reduction
    for reduction in (
        Reduction("update", ("none", "copy"), order_matters=True),
        Reduction("add", ("sum",)),
        Reduction("mul", ("prod", "multiply")),
        Reduction("min", ("amin",)),
        Reduction("max", ("amax",)),
        Reduction("mean", ()),
    )
}
#: Those whose result is one of the values combined.
EXTREMES = ("min", "max")
_BY_ALIAS = {
    alias: reduction.name for reduction in REDUCTIONS.values() for alias in reduction.aliases
}


def canonical_reduction(name: str, operator: str) -> str:
    """The table's name for a front end's reduction.

    Raises
    ------
    ScatterError
        If no reduction has that name.
    """
    canonical = _BY_ALIAS.get(name, name) if isinstance(name, str) else None
    if canonical not in REDUCTIONS:
        known = ", ".join(sorted({*REDUCTIONS, *_BY_ALIAS}))
        raise ScatterError(f"{operator}: unknown reduction {name!r}; it must be one of {known}.")
    return canonical


def identity(reduction: str, dtype: str) -> float | int:
    """The value that leaves any other unchanged, for reductions that start from nothing.

    ``mean`` starts from the identity of its sum. ``update`` has none.
    """
    if reduction in ("add", "mean"):
        # 0 + -0 is 0, but -0 + x is x for every x.
        return -0.0 if dtype in FLOATS else 0
    if reduction == "mul":
        return 1
    if reduction not in EXTREMES:
        raise ScatterError(f"scatter: reduction {reduction!r} has no identity.")
    if dtype in FLOATS:
        return float("inf") if reduction == "min" else float("-inf")
    if dtype == "bool":
        return 1 if reduction == "min" else 0
    limits = np.iinfo(dtype)
    return int(limits.max if reduction == "min" else limits.min)


def last_in_order(reduction: str, dtype: str) -> int:
    """The bits of the NaN that a minimum or a maximum with a NaN among its updates is.

    Minimum and maximum of floats are those of IEEE 754's total order, in which -0 comes before +0,
    so that they do not depend on the order of the updates. Every NaN of an update counts as the
    value at the end of that order: all bits set, for ``max`` without the sign. A NaN that stands at
    the destination and is included stays as it is.

    Returns
    -------
    bits : int
        As a signed integer of the width of the type.
    """
    return -1 if reduction == "min" else int(2 ** (8 * item_bytes(dtype) - 1) - 1)


def is_order_free(reduction: str, dtype: str) -> bool:
    """Whether every order of the updates gives the same bits.

    Minimum and maximum are exact and follow a total order (:func:`last_in_order`), integer sums and
    products wrap around; sums and products of floating-point numbers round differently in every
    order.
    """
    if REDUCTIONS[reduction].order_matters:
        return False
    return reduction in EXTREMES or dtype not in FLOATS


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy type for a data type, bfloat16 included."""
    return np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)


def item_bytes(dtype: str) -> int:
    """Bytes of one element."""
    return numpy_dtype(dtype).itemsize


#: Unit roundoff of the types that round.
ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def sum_error_bound(dtype: str, additions: Any, magnitude: Any, exact: Any, wide: bool) -> Any:
    """How far a sum may be from the exact one, where nothing overflows or is subnormal.

    Adding n values in any order with unit roundoff u is off by at most n u / (1 - n u) of the sum
    of magnitudes (Higham, "Accuracy and Stability of Numerical Algorithms", section 4.2).

    Parameters
    ----------
    additions : number or array
        Updates of the destination.
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


def check_dtypes(operator: str, data: str, index: str, updates: str) -> None:
    """Refuse data types that the operator does not take, in one sentence.

    Raises
    ------
    ScatterError
        If the data type is not in the table, the index is no integer, or the types disagree.
    """
    if data not in DATA_DTYPES:
        raise ScatterError(
            f"{operator}: data of type {data} is not supported; it must be one of "
            f"{', '.join(DATA_DTYPES)}."
        )
    taken = (*INDEX_DTYPES, "uint64")
    if index not in taken:
        raise ScatterError(
            f"{operator}: an index of type {index} is not supported; it must be one of "
            f"{', '.join(taken)}."
        )
    if updates != data:
        raise ScatterError(
            f"{operator}: updates of type {updates} do not match data of type {data}; cast one of "
            "them."
        )
