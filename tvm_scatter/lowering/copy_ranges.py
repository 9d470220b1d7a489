"""``copy_ranges``: ranges of tensors written over ranges of one axis, all known beforehand.

Nothing need be read to know where an output comes from. A GPU computes it in one launch, which TVM
fuses with what computes the sources. In place, and on a CPU, it is a scatter like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.ops.names import INDEX_PUT
from tvm_scatter.ops.scatter_call import CopiedRange, ScatterCall
from tvm_scatter.options import Options
from tvm_scatter.selection.backend import backend_for

from .joined_ranges import JoinedRange, reader, shifted
from .operands import Computed, Given, KnownPositions
from .recipes import Joined


def in_one_kernel(call: ScatterCall, target_kind: str, options: Options) -> bool:
    """Whether a call is computed by :func:`copy_kernel`: not where a scatter is asked for."""
    if call.in_place or options.implementation is not None:
        return False
    return backend_for(target_kind).gathers_known_writes


def copy_kernel(bb: relax.BlockBuilder, call: ScatterCall) -> relax.Expr:
    """One function that reads each output from where it comes from."""
    [axis] = call.axes
    ranges = sorted(call.ranges, key=lambda each: each.place)

    def copy_ranges(data: te.Tensor, *sources: te.Tensor) -> te.Tensor:
        joined = _filled(data, sources, ranges, axis, data.shape[axis])
        return te.compute(data.shape, reader(joined, lambda at: at[axis]), name="copy_ranges")

    return bb.call_te(copy_ranges, call.data, *call.sources, primfunc_name_hint="copy_ranges")


def as_index_put(call: ScatterCall) -> ScatterCall:
    """The same as a scatter of all sources, one behind the other, at constant positions.

    Its index and updates are operands that are still to be made.
    """
    [axis] = call.axes
    first = call.sources[0].ty
    count = sum(each.length for each in call.ranges)
    shape = [count if at == axis else dim for at, dim in enumerate(first.shape)]
    updates = Computed(
        compute=Joined(call.ranges, axis),
        sources=tuple(map(Given, call.sources)),
        sizes=(),
        ty=relax.TensorType(shape, first.dtype),
        hint="join",
    )
    return call.replace(
        form=INDEX_PUT,
        indices=(KnownPositions(call.ranges),),
        updates=updates,
        sources=(),
        ranges=(),
        unique=True,
    )


def _filled(
    data: te.Tensor,
    sources: Sequence[te.Tensor],
    ranges: Sequence[CopiedRange],
    axis: int,
    extent: Any,
) -> list[JoinedRange]:
    """The ranges with those of the data between them."""
    joined: list[JoinedRange] = []
    end = 0
    for source, begin, place, length in ranges:
        if place > end:
            joined.append((place, shifted(data, axis, 0)))
        joined.append((place + length, shifted(sources[source], axis, begin - place)))
        end = place + length
    if not isinstance(extent, int | tirx.IntImm) or end < int(extent):
        joined.append((end, shifted(data, axis, 0)))
    return joined
