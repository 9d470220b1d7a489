"""The bounds check on the GPU: one launch, after which each block names its first bad index."""

from __future__ import annotations

from typing import Any

from tvm_scatter.bounds import CheckOperands, DeviceCheck
from tvm_scatter.sizes import at_least, at_most, ceil_div
from tvm_scatter.strategies.cuda.launch import run_routine
from tvm_scatter.strategies.cuda.source import c_type, routine

_THREADS = 1024
_ENTRIES_OF_THREAD = 8
#: Two for each multiprocessor of the larger GPUs; what they leave is copied to the host.
_MOST_BLOCKS = 256


def _blocks(entries: Any) -> int:
    """How many blocks look for bad indices among so many entries."""
    if not isinstance(entries, int):
        return _MOST_BLOCKS
    return at_most(at_least(ceil_div(entries, _THREADS * _ENTRIES_OF_THREAD), 1), _MOST_BLOCKS)


def _check_indices(operands: CheckOperands) -> None:
    """Add the launch that fills ``operands.status``."""
    parameters, values = ["void* status"], [operands.status.data]
    wrap = "true" if operands.check.wrap_negative else "false"
    lines = ["  BadIndex first{-1, 0, 0, 0};"]
    for component, (which, stride, offset) in enumerate(operands.components):
        index = c_type(operands.check.index_dtypes[which])
        parameters += [
            f"void* indices{component}",
            f"long long entries{component}",
            f"long long extent{component}",
        ]
        values += [
            operands.indices[which].data,
            operands.lengths[which] // stride,
            operands.extents[component],
        ]
        lines.append(
            f"  find_bad_index<{index}, {wrap}>(first, static_cast<const {index}*>"
            f"(indices{component}), entries{component}, {stride}, {offset}, extent{component}, "
            f"{component});"
        )
    lines.append("  leave_bad_index(first, static_cast<int64*>(status));")
    name, source = routine(("check",), (), parameters, "\n".join(lines))
    run_routine(name, source, values, operands.parts, _THREADS)


CHECK = DeviceCheck(_blocks, _check_indices)
