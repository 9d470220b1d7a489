"""What PyTorch does anew for each export and import takes as long as a small program itself.

It lists all its composite operators and their decompositions several times; here, once for all. It
cannot keep them, since a program may register operators. So they are listed anew where more of them
are registered than before. Twice for each program it gives each of 800 operators a kernel for each
of twenty dispatch keys; here, these are made once. Nodes do not remember where they were made: each
of them would read and print a stack.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

#: The modules that have the function by name.
_MODULES = ("torch._export.utils", "torch.export.exported_program", "torch.export.decomp_utils")
_NAME = "_collect_all_valid_cia_ops"
OVERRIDE = "_override_composite_implicit_decomp"


def enable() -> None:
    """Keep what does not change from one program to the next, where the exporter is loaded."""
    modules = [sys.modules.get(name) for name in _MODULES]
    if not all(hasattr(module, _NAME) for module in modules):
        return
    kept = _kept(getattr(modules[0], _NAME))
    for module in modules:
        setattr(module, _NAME, kept)
    sys.modules["torch.fx.proxy"].CapturedTraceback = _NoStack
    _, exported_program, tables = modules
    decomposed_by.stock = getattr(exported_program, OVERRIDE)  # type: ignore[attr-defined]
    setattr(exported_program, OVERRIDE, decomposed_by)
    made = tables.CustomDecompTable.__init__
    tables.CustomDecompTable.__init__ = _copied(made)


class _NoStack:
    """A stack of which nothing is read."""

    @staticmethod
    def extract() -> type[_NoStack]:
        return _NoStack

    @staticmethod
    def summary() -> None:
        return None


def _kept(collect: Callable[[], Any]) -> Callable[[], Any]:
    """A function without arguments, whose result holds until another operator is registered."""
    found: dict[tuple[str, ...], Any] = {}

    def collect_once() -> Any:
        registered = _registered()
        if registered not in found:
            found.clear()
            found[registered] = collect()
        return found[registered]

    return collect_once


def _copied(make: Callable[[Any], None]) -> Callable[[Any], None]:
    """A constructor of a table of decompositions, which copies the first one that was made."""

    def first() -> dict[str, Any]:
        from torch.export.decomp_utils import CustomDecompTable

        table = CustomDecompTable.__new__(CustomDecompTable)
        make(table)
        return vars(table)

    kept = _kept(first)

    def copy(table: Any) -> None:
        vars(table).update(kept())
        table.decomp_table = dict(table.decomp_table)
        table.deleted_custom_ops = set()

    return copy


@contextmanager
def decomposed_by(decompositions: Mapping[Any, Callable[..., Any]]) -> Iterator[None]:
    """PyTorch's ``_override_composite_implicit_decomp``: operators are decomposed as it is said.

    Elsewhere than in this table, an operator's kernel is what it was, or the composite one.
    """
    from torch._C import DispatchKey
    from torch._subclasses.fake_impls import _deregister_op_impl, op_implementations_dict

    before = {operator: operator.py_kernels.copy() for operator in decompositions}
    for operator, decompose in decompositions.items():
        kernels = operator.py_kernels
        composite = kernels.pop(DispatchKey.CompositeImplicitAutograd, None)
        others, fake = _other_kernels(operator, composite)
        for key, kernel in others.items():
            kernels.setdefault(key, kernel)
        kernels[DispatchKey.CompositeImplicitAutograd] = decompose
        operator._dispatch_cache.clear()
        op_implementations_dict.setdefault(operator, fake)
    try:
        yield
    finally:
        for operator, kernels in before.items():
            operator.py_kernels.clear()
            operator.py_kernels.update(kernels)
            operator._dispatch_cache.clear()
            _deregister_op_impl(operator)


@functools.cache
def _other_kernels(operator: Any, composite: Any) -> tuple[dict[Any, Any], Callable[..., Any]]:
    """The kernels of an operator for other dispatch keys, and the one for fake tensors."""
    from torch._export.utils import _get_decomp_for_cia
    from torch._higher_order_ops.utils import autograd_not_implemented
    from torch.export import exported_program

    whole = composite if callable(composite) else _get_decomp_for_cia(operator)
    fails = autograd_not_implemented(operator, deferred_error=True)

    def fake(mode: Any, operator: Any, *arguments: Any, **named: Any) -> Any:
        with mode:
            return whole(*arguments, **named)

    kernels = dict.fromkeys(exported_program._AUTOGRAD_ALIAS_BACKEND_KEYS_TO_OVERRIDE, fails)
    return kernels | dict.fromkeys(exported_program._BACKEND_KEYS_TO_OVERRIDE, whole), fake


def _registered() -> tuple[str, ...]:
    import torch

    return tuple(torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd"))
