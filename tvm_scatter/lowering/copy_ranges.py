"""``copy_ranges``: ranges of tensors written over ranges of one axis, all known beforehand.

Nothing need be read to know where an output comes from. A GPU computes it in one launch, which TVM
fuses with what computes the sources. In place, and on a CPU, it is a scatter like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from tvm_scatter.ops.names import INDEX_PUT
from tvm_scatter.ops.scatter_call import CopiedRange, ScatterCall
from tvm_scatter.options import current_options
from tvm_scatter.selection.backend import backend_for

from .pieces import Piece, reader


def in_one_kernel(call: ScatterCall, target_kind: str) -> bool:
    """Whether a call is computed by :func:`copy_kernel`: not where a scatter is asked for."""
    if call.in_place or current_options().implementation is not None:
        return False
    return backend_for(target_kind).gathers_known_writes


def copy_kernel(bb: relax.BlockBuilder, call: ScatterCall) -> relax.Expr:
    """One function that reads each output from where it comes from."""
    [axis] = call.axes
    ranges = sorted(call.ranges, key=lambda each: each.place)

    def copy_ranges(data: te.Tensor, *sources: te.Tensor) -> te.Tensor:
        pieces = _filled(data, sources, ranges, axis, data.shape[axis])
        return te.compute(data.shape, reader(pieces, lambda at: at[axis]), name="copy_ranges")

    return bb.call_te(copy_ranges, call.data, *call.sources, primfunc_name_hint="copy_ranges")


def as_index_put(bb: relax.BlockBuilder, call: ScatterCall) -> ScatterCall:
    """The same as a scatter of all sources, one behind the other, at constant positions."""
    [axis] = call.axes
    count = sum(each.length for each in call.ranges)

    def join(*sources: te.Tensor) -> te.Tensor:
        pieces: list[Piece] = []
        end = 0
        for source, begin, _, length in call.ranges:
            pieces.append((end + length, _read(sources[source], axis, begin - end)))
            end += length
        shape = [count if at == axis else dim for at, dim in enumerate(sources[0].shape)]
        return te.compute(shape, reader(pieces, lambda at: at[axis]), name="join")

    updates = bb.emit_te(join, *call.sources, primfunc_name_hint="join")
    places = [np.arange(each.place, each.place + each.length) for each in call.ranges]
    index = bb.normalize(relax.const(np.concatenate(places), "int64"))
    return call.replace(
        form=INDEX_PUT, indices=(index,), updates=updates, sources=(), ranges=(), unique=True
    )


def _filled(
    data: te.Tensor,
    sources: Sequence[te.Tensor],
    ranges: Sequence[CopiedRange],
    axis: int,
    extent: Any,
) -> list[Piece]:
    """The ranges with those of the data between them."""
    pieces: list[Piece] = []
    end = 0
    for source, begin, place, length in ranges:
        if place > end:
            pieces.append((place, _read(data, axis, 0)))
        pieces.append((place + length, _read(sources[source], axis, begin - place)))
        end = place + length
    if not isinstance(extent, int | tirx.IntImm) or end < int(extent):
        pieces.append((end, _read(data, axis, 0)))
    return pieces


def _read(tensor: te.Tensor, axis: int, shift: int) -> Callable[[Any], Any]:
    return lambda at: tensor(*at[:axis], at[axis] + shift, *at[axis + 1 :])
