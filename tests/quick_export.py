"""What PyTorch does anew for each export and import takes as long as a small program itself.

It lists all its composite operators several times; here, once for all. It cannot keep the list,
since a program may register operators. So the list is made anew where more of them are registered
than before. It also gives each of them a kernel for a dozen dispatch keys, and builds the same type
annotations for each kernel; here, it builds none. Nodes do not remember where they were made: each
of them would read and print a stack.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

#: The modules that have the function by name.
_MODULES = ("torch._export.utils", "torch.export.exported_program", "torch.export.decomp_utils")
_NAME = "_collect_all_valid_cia_ops"


def enable() -> None:
    """Keep the list of composite operators, where PyTorch's exporter is loaded."""
    modules = [sys.modules.get(name) for name in _MODULES]
    if not all(hasattr(module, _NAME) for module in modules):
        return
    kept = _kept(getattr(modules[0], _NAME))
    for module in modules:
        setattr(module, _NAME, kept)
    sys.modules["torch.fx.proxy"].CapturedTraceback = _NoStack
    operator = sys.modules["torch._ops"].OperatorBase
    operator.py_impl = _without_annotations(operator.py_impl)


class _NoStack:
    """A stack of which nothing is read."""

    @staticmethod
    def extract() -> type[_NoStack]:
        return _NoStack

    @staticmethod
    def summary() -> None:
        return None


def _kept(collect: Callable[[], set[Any]]) -> Callable[[], set[Any]]:
    found: dict[tuple[str, ...], set[Any]] = {}

    def collect_once() -> set[Any]:
        registered = _registered()
        if registered not in found:
            found.clear()
            found[registered] = collect()
        return found[registered]

    return collect_once


def _without_annotations(py_impl: Callable[..., Any]) -> Callable[..., Any]:
    from torch._C import DispatchKey

    def register(operator: Any, key: Any) -> Callable[..., Any]:
        if not isinstance(key, DispatchKey) or key == DispatchKey.Python:
            return py_impl(operator, key)

        def keep(kernel):  # type: ignore[no-untyped-def]  # what is annotated is what takes long
            if key in operator.py_kernels:
                return py_impl(operator, key)(kernel)
            operator.py_kernels[key] = kernel
            operator._dispatch_cache.clear()
            return kernel

        return keep

    return register


def _registered() -> tuple[str, ...]:
    import torch

    return tuple(torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd"))
