"""``assign``: ranges of several tensors written over ranges of one axis, all known beforehand.

Nothing need be read to know where an output comes from. A GPU computes it in one launch, which TVM
fuses with what computes the sources. In place, and on a CPU, it is a scatter like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from tvm_scatter.ops.operators import INDEX_PUT, Run, runs_of
from tvm_scatter.ops.scatter_call import rewritten
from tvm_scatter.options import current_options

from .pieces import Piece, reader


def in_one_kernel(call: relax.Call, target_kind: str) -> bool:
    """Whether a call is computed by :func:`assign_kernel`: not where a scatter is asked for."""
    return (
        target_kind == "cuda" and not is_in_place(call) and current_options().implementation is None
    )


def is_in_place(call: relax.Call) -> bool:
    """Whether the call overwrites its data."""
    return "in_place" in call.attrs and bool(call.attrs["in_place"])


def assign_kernel(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """One function that reads each output from where it comes from."""
    axis, runs = int(call.attrs["axis"]), runs_of(call)

    def assign(data: te.Tensor, *sources: te.Tensor) -> te.Tensor:
        extent = data.shape[axis]
        pieces = _filled(data, sources, sorted(runs, key=lambda run: run[2]), axis, extent)
        return te.compute(data.shape, reader(pieces, lambda at: at[axis]), name="assign")

    return bb.call_te(assign, call.args[0], *call.args[1].fields, primfunc_name_hint="assign")


def as_index_put(bb: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    """The same as a scatter of all sources, one behind the other, at constant positions."""
    axis, runs = int(call.attrs["axis"]), runs_of(call)
    count = sum(length for *_, length in runs)

    def join(*sources: te.Tensor) -> te.Tensor:
        pieces: list[Piece] = []
        end = 0
        for source, begin, _, length in runs:
            pieces.append((end + length, _read(sources[source], axis, begin - end)))
            end += length
        shape = [count if at == axis else dim for at, dim in enumerate(sources[0].shape)]
        return te.compute(shape, reader(pieces, lambda at: at[axis]), name="join")

    updates = bb.emit_te(join, *call.args[1].fields, primfunc_name_hint="join")
    places = np.concatenate([np.arange(at, at + length) for _, _, at, length in runs])
    operands = [call.args[0], relax.Tuple([relax.const(places, "int64")]), updates]
    put = rewritten(call, operands, INDEX_PUT, axes=[axis], wrap_negative=False, unique=True)
    return bb.normalize(put)


def _filled(
    data: te.Tensor, sources: Sequence[te.Tensor], runs: Sequence[Run], axis: int, extent: Any
) -> list[Piece]:
    """The runs with the ranges of the data between them."""
    pieces: list[Piece] = []
    end = 0
    for source, begin, place, length in runs:
        if place > end:
            pieces.append((place, _read(data, axis, 0)))
        pieces.append((place + length, _read(sources[source], axis, begin - place)))
        end = place + length
    if not isinstance(extent, int | tirx.IntImm) or end < int(extent):
        pieces.append((end, _read(data, axis, 0)))
    return pieces


def _read(tensor: te.Tensor, axis: int, shift: int) -> Callable[[Any], Any]:
    return lambda at: tensor(*at[:axis], at[axis] + shift, *at[axis + 1 :])
