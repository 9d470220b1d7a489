"""Installs the kernel cache in TVM's callbacks, and removes it.

TVM calls ``tvm_callback_cuda_postproc(source, target)`` and then, on the same thread and without
the target, ``tvm_callback_cuda_compile(source)``. A callback registered by other code is kept and
not cached, because it is unknown what its result depends on.
"""

from __future__ import annotations

import threading
from typing import Any

import tvm
import tvm_ffi
from tvm.support import nvcc
from tvm.target import Target

from .compile import compile_cached

_COMPILE = "tvm_callback_cuda_compile"
_POSTPROC = "tvm_callback_cuda_postproc"
# Kept as attributes of TVM's module, so that a reloaded copy of this module finds them.
_ours: dict[str, Any] = tvm.__dict__.setdefault("_tvm_scatter_kernel_cache", {})


class _Generated(threading.local):
    """The source that was generated last on this thread, and its target."""

    source: str | None = None
    target: Target | None = None


_generated = _Generated()


def install_cache() -> None:
    """Put the cache in front of TVM's compiler, unless other code has replaced that."""
    compiler = tvm_ffi.get_global_func(_COMPILE, allow_missing=True)
    if compiler is None or not (_is_ours(_COMPILE) or compiler.same_as(_tvms())):
        return
    if not _is_ours(_POSTPROC):
        _ours["previous postproc"] = tvm_ffi.get_global_func(_POSTPROC, allow_missing=True)
    _register(_POSTPROC, _note_target)
    _register(_COMPILE, _compile)


def uninstall_cache() -> None:
    """Restore TVM's compiler. Callbacks that others have registered since are kept."""
    if _is_ours(_COMPILE):
        tvm_ffi.register_global_func(_COMPILE, _tvms(), override=True)
    if _is_ours(_POSTPROC):
        previous = _ours.get("previous postproc")
        if previous is None:
            tvm_ffi.remove_global_func(_POSTPROC)
        else:
            tvm_ffi.register_global_func(_POSTPROC, previous, override=True)
    _ours.clear()


def _tvms() -> Any:
    return nvcc.tvm_callback_cuda_compile


def _register(name: str, function: Any) -> None:
    _ours[name] = tvm_ffi.register_global_func(name, function, override=True)


def _is_ours(name: str) -> bool:
    registered = tvm_ffi.get_global_func(name, allow_missing=True)
    return registered is not None and name in _ours and bool(registered.same_as(_ours[name]))


def _note_target(source: str, target: Target) -> str:
    previous = _ours.get("previous postproc")
    if previous is not None:
        source = previous(source, target)
    _generated.source, _generated.target = str(source), target
    return str(source)


def _compile(source: str) -> bytes:
    source = str(source)
    # Any other source, as when a library is loaded, is compiled for this machine's GPU.
    target = _generated.target if _generated.source == source else None
    _generated.source = _generated.target = None
    return compile_cached(source, target, _tvms())
