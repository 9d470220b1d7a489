"""TVM's fusion of operators, which must not compute anything before the sizes that it needs.

``FuseOps`` and ``FuseOpsByPattern`` order the bindings of a dataflow block anew, by the variables
that they read. A size is none of these. Where one comes to be read too early, the function is fused
again in parts, between which nothing moves.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax
from tvm.relax import transform

from .analysis.size_order import reads_sizes_too_early
from .cut_at_sizes import cut_at_sizes
from .functions import is_ours_to_change, with_changes
from .long_expressions import without_long_expressions
from .put_together import put_together

#: Not replaced where they are defined, so that they are found after a reload of this package, too.
_STOCK = {name: getattr(transform.transform, name) for name in ("FuseOps", "FuseOpsByPattern")}


def install_fusion() -> None:
    """Let TVM's pipelines, which look the passes up when they run, find the ordered ones."""
    for name, stock in _STOCK.items():
        setattr(transform, name, _ordered(stock))


def uninstall_fusion() -> None:
    """Restore TVM's own passes."""
    for name, stock in _STOCK.items():
        setattr(transform, name, stock)


def _ordered(stock: Callable[..., tvm.transform.Pass]) -> Callable[..., tvm.transform.Pass]:
    @functools.wraps(stock)
    def make(*args: Any, **kwargs: Any) -> tvm.transform.Pass:
        fuse = stock(*args, **kwargs)

        def run(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
            return _fused(without_long_expressions(put_together(mod)), fuse)

        return tvm.transform.module_pass(run, opt_level=fuse.info.opt_level, name=fuse.info.name)

    return make


def _fused(mod: tvm.IRModule, fuse: tvm.transform.Pass) -> tvm.IRModule:
    fused = fuse(mod)
    disordered = {
        name.name_hint
        for name, function in fused.functions.items()
        if is_ours_to_change(function) and reads_sizes_too_early(function)
    }
    if not disordered:
        return fused
    return fuse(with_changes(mod, lambda name, function: _cut(name, function, disordered)))


def _cut(
    name: tvm.ir.GlobalVar, function: relax.Function, disordered: set[str]
) -> relax.Function | None:
    return cut_at_sizes(function) if name.name_hint in disordered else None
