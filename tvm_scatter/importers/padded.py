"""A tensor with a number put around it, by amounts that only the run time knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx


def padded(data: te.Tensor, sizes: Sequence[Any], befores: Sequence[Any], value: Any) -> te.Tensor:
    """The padded tensor.

    Parameters
    ----------
    data : te.Tensor
        The tensor.
    sizes, befores : sequence of expression
        For each axis the size of the result, and how many elements are put in front of it; a
        negative number takes so many away.
    value : expression
        What is put there.
    """

    def element(*at: Any) -> Any:
        places = [place.astype("int64") - before for place, before in zip(at, befores, strict=True)]
        inside = [
            part
            for place, size in zip(places, data.shape, strict=True)
            for part in (place >= 0, place < size)
        ]
        return tirx.if_then_else(tirx.all(*inside), data(*places), value)

    return te.compute(list(sizes), element, name="pad")
