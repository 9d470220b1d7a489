"""Marks kernels that wait for the one before them, so that TVM launches them while that one ends.

TVM launches a kernel so if its launch parameters have a tag. The pass that makes kernels knows no
way to ask for it, so the tag is added where TVM generates code for them.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

_BUILD = "target.build.cuda"
_PARAMETERS = "tirx.kernel_launch_params"
_TAG = "tirx.use_programtic_dependent_launch"
#: What the source of a kernel that waits has in it, in some form.
_MARK = "  begin_overlapped"
# Kept as attributes of TVM's module, so that a reloaded copy of this module finds them.
_ours: dict[str, Any] = tvm.__dict__.setdefault("_tvm_scatter_overlapped_launches", {})


def install_tags() -> None:
    """Put this in front of TVM's code generator. Calling it again changes nothing."""
    stock = tvm_ffi.get_global_func(_BUILD, allow_missing=True)
    if stock is None or _is_ours():
        return
    _ours["stock"] = stock
    _ours["tagging"] = tvm_ffi.register_global_func(_BUILD, _build, override=True)


def uninstall_tags() -> None:
    """Restore TVM's code generator. One that others have registered since is kept."""
    if _is_ours():
        tvm_ffi.register_global_func(_BUILD, _ours["stock"], override=True)
        _ours.clear()


def _is_ours() -> bool:
    registered = tvm_ffi.get_global_func(_BUILD, allow_missing=True)
    return "tagging" in _ours and bool(registered.same_as(_ours["tagging"]))


def _build(mod: tvm.IRModule, target: Any) -> Any:
    tagged = {name: _tagged(func) for name, func in mod.functions.items() if _waits(func)}
    if tagged:
        mod = tvm.IRModule({**dict(mod.functions.items()), **tagged}, attrs=mod.attrs)
    return _ours["stock"](mod, target)


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
