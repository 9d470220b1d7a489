"""The bounds check on the GPU: find the first bad index, then describe it."""

from __future__ import annotations

from typing import Any

from tvm_scatter.bounds import STATUS, CheckOperands
from tvm_scatter.sizes import at_most, ceil_div
from tvm_scatter.strategies.cuda.launch import run_routine
from tvm_scatter.strategies.cuda.source import c_type, routine

_THREADS = 256
_BLOCKS = 1024


def check_indices(operands: CheckOperands) -> None:
    """Add launches that fill ``operands.status``."""
    clear = f"  for (int i = 0; i < {len(STATUS)}; ++i) static_cast<int64*>(status)[i] = -1;"
    name, source = routine(("check",), (), ["void* status"], clear)
    run_routine(name, source, [operands.status.data], 1, 1)
    for component in range(len(operands.components)):
        _launch(operands, component, "find_bad_index", "", spread=True)
    for component in reversed(range(len(operands.components))):
        _launch(operands, component, "describe_bad_index", f", {component}", spread=False)


def _launch(
    operands: CheckOperands, component: int, function: str, more: str, spread: bool
) -> None:
    which, stride, offset = operands.components[component]
    entries: Any = operands.lengths[which] // stride
    index = c_type(operands.check.index_dtypes[which])
    wrap = "true" if operands.check.wrap_negative else "false"
    body = (
        f"  {function}<{index}, {wrap}>(static_cast<int64*>(status), "
        f"static_cast<const {index}*>(indices), entries, {stride}, {offset}, extent{more});"
    )
    parameters = ["void* status", "void* indices", "long long entries", "long long extent"]
    name, source = routine(("check",), (), parameters, body)
    values = [
        operands.status.data,
        operands.indices[which].data,
        entries,
        operands.extents[component],
    ]
    blocks = at_most(ceil_div(entries, _THREADS * 4), _BLOCKS) if spread else 1
    run_routine(name, source, values, blocks, _THREADS if spread else 1)
