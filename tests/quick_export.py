"""PyTorch lists all its composite operators several times for each import; here, once for all.

It cannot keep the list, since a program may register operators. So the list is made anew where
more of them are registered than before.
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


def _kept(collect: Callable[[], set[Any]]) -> Callable[[], set[Any]]:
    found: dict[tuple[str, ...], set[Any]] = {}

    def collect_once() -> set[Any]:
        registered = _registered()
        if registered not in found:
            found.clear()
            found[registered] = collect()
        return found[registered]

    return collect_once


def _registered() -> tuple[str, ...]:
    import torch

    return tuple(torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd"))
