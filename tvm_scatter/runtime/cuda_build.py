"""What is changed in kernels where TVM writes CUDA of them and has it compiled."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi

from .overlapped_launches import with_tags
from .shared_headers import with_headers_once

_BUILD = "target.build.cuda"
# Kept as attributes of TVM's module, so that a reloaded copy of this module finds them.
_ours: dict[str, Any] = tvm.__dict__.setdefault("_tvm_scatter_cuda_build", {})


def install_build() -> None:
    """Put this in front of TVM's code generator. Calling it again changes nothing."""
    stock = tvm_ffi.get_global_func(_BUILD, allow_missing=True)
    if stock is None or _is_ours():
        return
    _ours["stock"] = stock
    _ours["changing"] = tvm_ffi.register_global_func(_BUILD, _build, override=True)


def uninstall_build() -> None:
    """Restore TVM's code generator. One that others have registered since is kept."""
    if _is_ours():
        tvm_ffi.register_global_func(_BUILD, _ours["stock"], override=True)
        _ours.clear()


def _is_ours() -> bool:
    registered = tvm_ffi.get_global_func(_BUILD, allow_missing=True)
    return "changing" in _ours and bool(registered.same_as(_ours["changing"]))


def _build(mod: tvm.IRModule, target: Any) -> Any:
    return _ours["stock"](with_headers_once(with_tags(mod)), target)
