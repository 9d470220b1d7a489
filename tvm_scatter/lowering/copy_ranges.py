"""``copy_ranges``: copies ranges of source tensors to ranges of one axis of the data.

All positions are known at compile time, so no index is read. On a GPU each output element is read
from its source or from the data, in one launch that TVM can fuse with the producers of the sources.
In place, and on a CPU, the copy is lowered to a scatter.
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
    """Whether :func:`copy_kernel` computes the call; otherwise a scatter does.

    The option ``implementation`` forces a scatter.
    """
    if call.in_place or options.implementation is not None:
        return False
    return backend_for(target_kind).gathers_known_writes


def copy_kernel(bb: relax.BlockBuilder, call: ScatterCall) -> relax.Expr:
    """Emit one function that reads each output element from its source or from the data."""
    [axis] = call.axes
    ranges = sorted(call.ranges, key=lambda each: each.place)

    def copy_ranges(data: te.Tensor, *sources: te.Tensor) -> te.Tensor:
        joined = _filled(data, sources, ranges, axis, data.shape[axis])
        return te.compute(data.shape, reader(joined, lambda at: at[axis]), name="copy_ranges")

    return bb.call_te(copy_ranges, call.data, *call.sources, primfunc_name_hint="copy_ranges")


def as_index_put(call: ScatterCall) -> ScatterCall:
    """The same copy as a scatter: the ranges are concatenated and written at constant positions.

    The index and the updates are operands that are not emitted yet.
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
    """The ranges of the sources, and between them the ranges of the data that stay."""
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
