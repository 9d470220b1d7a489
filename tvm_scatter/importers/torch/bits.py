"""``view`` of a tensor's bits as another type."""

from __future__ import annotations

from functools import reduce
from typing import Any

import tvm
from tvm import te, tirx

from .call import TorchCall


def view_of_bits(call: TorchCall) -> Any:
    """``view`` to a type: the last axis grows or shrinks as elements become narrower or wider.

    The first of several narrow elements has the lowest bits of a wide one, as on little-endian
    machines.
    """
    data, dtype = call["self"], str(call["dtype"]).removeprefix("torch.")
    before = str(data.ty.dtype)
    if "bool" in (before, dtype) or "complex" in dtype:
        raise call.error(f"a view of {before} as {dtype} is not supported; use numbers of bits.")
    if before == dtype:
        return data
    return call.compute(_viewed, data, dtype, name="view_of_bits")


def _viewed(data: te.Tensor, dtype: str) -> te.Tensor:
    before, after = _bits(data.dtype), _bits(dtype)
    *outer, last = data.shape
    if before >= after:
        each = before // after

        def element(*at: Any) -> Any:
            *rest, place = at
            value = tirx.reinterpret(f"uint{before}", data(*rest, place // each))
            lowest = tirx.Cast(f"uint{before}", place % each * after)
            return tirx.reinterpret(dtype, (value >> lowest).astype(f"uint{after}"))

        return te.compute((*outer, last * each), element, name="narrower")

    several, unsigned = after // before, f"uint{after}"

    def joined(*at: Any) -> Any:
        *rest, place = at

        def shifted(part: int) -> Any:
            value = tirx.reinterpret(f"uint{before}", data(*rest, place * several + part))
            return value.astype(unsigned) << tirx.const(part * before, unsigned)

        return tirx.reinterpret(dtype, reduce(tirx.bitwise_or, map(shifted, range(several))))

    return te.compute((*outer, last // several), joined, name="wider")


def _bits(dtype: str) -> int:
    return int(tvm.DataType(dtype).bits)
