"""ONNX's ``ReverseSequence``: the beginning of each sequence of a batch in reverse order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from tvm_scatter.errors import ScatterError

from .onnx_sizes import with_shape


def reverse_sequence(
    bb: Any, operator: str, _opset: int, inputs: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """``ReverseSequence``. A length behind the end of a sequence reverses the whole sequence."""
    data, lengths = inputs
    time, batch = (
        int(attributes.get(name, at)) for name, at in (("time_axis", 0), ("batch_axis", 1))
    )
    if {time, batch} != {0, 1}:
        raise ScatterError(
            f"{operator}: time_axis {time} and batch_axis {batch} must be 0 and 1, or 1 and 0."
        )
    if data.ty.ndim < 2:
        raise ScatterError(f"{operator}: data of rank {data.ty.ndim} must have rank 2 or more.")
    lengths = with_shape(bb, operator, "sequence_lens", lengths, [data.ty.shape[batch]])

    def reverse(data: te.Tensor, lengths: te.Tensor) -> te.Tensor:
        def value(*at: Any) -> Any:
            length = tirx.min(tirx.Cast("int64", lengths(at[batch])), data.shape[time])
            place = tirx.Select(at[time] < length, length - 1 - at[time], at[time])
            return data(*at[:time], place, *at[time + 1 :])

        return te.compute(data.shape, value, name="reverse_sequence")

    return bb.emit_te(reverse, data, lengths, primfunc_name_hint="reverse_sequence")
