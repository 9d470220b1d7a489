"""Quotients of products of sizes, without the factors that are above and below the line."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd, prod
from typing import Any

from tvm import tirx

from tvm_scatter.ops.shapes import same_size


def whole_quotient(left: Any, right: Any) -> Any:
    """``left // right``. TVM cancels numbers, but no sizes, and PyTorch infers a size in this way.

    Parameters
    ----------
    left, right : int or expression
        Of which ``right`` is not zero.
    """
    above, below = list(_factors(left)), list(_factors(right))
    for each in list(below):
        equal = next((other for other in above if same_size(other, each)), None)
        if equal is not None and not isinstance(each, int):
            above = [other for other in above if other is not equal]
            below = [other for other in below if other is not each]
    numbers = [prod(each for each in side if isinstance(each, int)) for side in (above, below)]
    shared = gcd(*numbers)
    if not shared:
        return left // right
    over, under = (
        prod((each for each in side if not isinstance(each, int)), start=number // shared)
        for side, number in zip((above, below), numbers, strict=True)
    )
    return over if isinstance(under, int) and under == 1 else over // under


def _factors(product: Any) -> Iterator[Any]:
    if isinstance(product, tirx.Mul):
        yield from _factors(product.a)
        yield from _factors(product.b)
    else:
        yield int(product) if isinstance(product, tirx.IntImm) else product
