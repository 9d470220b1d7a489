"""``histc`` as a scatter that adds one to the bin of each element."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops.shapes import is_empty, number_of

from .arithmetic import is_integral
from .call import TorchCall, constant


def histc(call: TorchCall) -> Any:
    """``histc``: count elements in bins of equal width between ``min`` and ``max``.

    If ``min`` equals ``max``, the least and the greatest element are used instead. NaN and elements
    outside of the range are not counted.
    """
    data, bins = call["self"], int(call["bins"])
    low, high = float(call["min"]), float(call["max"])
    if bins <= 0 or low > high:
        raise call.error(
            f"bins={bins}, min={low}, max={high}: there must be at least one bin, and min must not "
            "be greater than max."
        )
    dtype = str(data.ty.dtype)
    zeros = call.emit(relax.op.zeros((bins,), dtype))
    if is_empty(data):
        return zeros
    count = number_of(shape_of(data))
    # PyTorch computes the bin in the type of the elements. Integers are computed in float64, which
    # is exact up to 2**53.
    wide = "float64" if is_integral(dtype) else dtype
    elements = call.cast(call.reshape(data, (count,)), wide)
    if low < high:
        ends = constant(low, wide), constant(high, wide)
    else:
        ends = call.emit(relax.op.min(elements)), call.emit(relax.op.max(elements))

    def place(x: te.Tensor, first: te.Tensor, last: te.Tensor) -> te.Tensor:
        def bin_of(i: Any) -> Any:
            single = first() == last()
            begin = tirx.Select(single, first() - 1, first())
            end = tirx.Select(single, last() + 1, last())
            at = tirx.Cast("int64", (x(i) - begin) * bins / (end - begin))
            # Not begin + (end - begin), which may be rounded to less than end.
            inside = tirx.all(x(i) >= begin, x(i) <= end)
            return tirx.Select(inside, tirx.min(at, bins - 1), tirx.IntImm("int64", bins))

        return te.compute(x.shape, bin_of, name="bin")

    places = call.compute(place, elements, *ends, name="bin")
    # One additional bin takes the elements that are not counted. It is cut off below.
    counted = ops.index_put(
        call.emit(relax.op.zeros((bins + 1,), dtype)),
        [places],
        constant(1, dtype),
        [0],
        "add",
        wrap_negative=False,
        operator=call.origin,
    )
    return call.emit(relax.op.strided_slice(call.emit(counted), [0], [0], [bins]))
