"""Marks kernels that wait for the one before them, so that TVM launches them while that one ends.

TVM launches a kernel so if its launch parameters have a tag. The pass that makes kernels knows no
way to ask for it, so the tag is added where TVM generates code for them.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

_PARAMETERS = "tirx.kernel_launch_params"
_TAG = "tirx.use_programtic_dependent_launch"
#: What the source of a kernel that waits has in it, in some form.
_MARK = "  begin_overlapped"


def with_tags(mod: tvm.IRModule) -> tvm.IRModule:
    """The kernels, with a tag where they wait."""
    tagged = {name: _tagged(func) for name, func in mod.functions.items() if _waits(func)}
    if not tagged:
        return mod
    return tvm.IRModule({**dict(mod.functions.items()), **tagged}, attrs=mod.attrs)


def _waits(func: Any) -> bool:
    """Whether a kernel is a call of a device routine, whose source begins by waiting."""
    if func.attrs is None or _PARAMETERS not in func.attrs:
        return False
    last = func.body
    while not isinstance(last, tirx.Evaluate):
        last = last.seq[-1] if isinstance(last, tirx.SeqStmt) else getattr(last, "body", None)
        if last is None:
            return False
    arguments: Any = getattr(last.value, "args", ())
    return len(arguments) > 0 and _MARK in str(getattr(arguments[-1], "value", ""))


def _tagged(func: Any) -> Any:
    # In front, because the bytes of shared memory come last.
    return func.with_attr(_PARAMETERS, [_TAG, *func.attrs[_PARAMETERS]])
