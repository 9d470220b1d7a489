"""TVM's fusion, which may fail for a group of functions: they then stay apart.

And its search for views, which fails at some sizes.

FuseTIR makes one function of each group that FuseOps has chosen. Where it cannot, the whole model
fails to compile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import tvm
from tvm import relax, tirx

from .inlining import inlined
from .known_sizes import with_known_sizes
from .named_sizes import NameSizes
from .simple_sizes import with_simple_sizes, with_simple_types

#: Not replaced where it is defined, so that it is found after a reload of this package, too.
_STOCK = relax.transform.transform.FuseTIR
_STOCK_VIEWS = relax.transform.transform.RewriteDataflowReshape
_logger = logging.getLogger("tvm_scatter")


def GuardedFuseTIR() -> tvm.transform.Pass:
    """``relax.transform.FuseTIR``, in which a group that cannot be fused stays as it is."""

    def fuse(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        mod = _with_simple_sizes(mod)
        try:
            fused = _STOCK()(mod)
        except Exception as error:  # TVM's checks raise whatever their code says
            apart = _without_failing_groups(mod)
            if apart is mod:
                raise error
            fused = _STOCK()(apart)
        return NameSizes()(fused)

    return tvm.transform.module_pass(fuse, opt_level=0, name="FuseTIR")


def GuardedRewriteDataflowReshape() -> tvm.transform.Pass:
    """``relax.transform.RewriteDataflowReshape``, which fails at transposes of sums of sizes."""
    passes = [NameSizes(), _STOCK_VIEWS()]
    return tvm.transform.Sequential(passes, name="RewriteDataflowReshape")


def install_guard() -> None:
    """Let TVM's pipelines, which look the passes up when they run, find the guarded ones."""
    relax.transform.FuseTIR = GuardedFuseTIR
    relax.transform.RewriteDataflowReshape = GuardedRewriteDataflowReshape


def uninstall_guard() -> None:
    """Restore TVM's own passes."""
    relax.transform.FuseTIR = _STOCK
    relax.transform.RewriteDataflowReshape = _STOCK_VIEWS


def _with_simple_sizes(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with sizes in one form in all groups, and in the functions that they call."""
    result = mod.clone()
    groups = _groups(mod)
    for name, function in mod.functions_items():
        if isinstance(function, relax.Function) and name not in groups:
            result.update_func(name, with_known_sizes(function))
    for name, group in groups.items():
        result.update_func(name, with_simple_types(group))
    for name in {each for group in groups.values() for each in _called(group)}:
        if isinstance(mod[name], tirx.PrimFunc):
            result.update_func(name, with_simple_sizes(mod[name]))
    return result


def _without_failing_groups(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with the groups that cannot be fused in the place of their calls."""
    failing = {}
    for name, group in _groups(mod).items():
        error = _failure(mod, name, group)
        if error is not None:
            failing[name] = group
            said = str(error).strip().splitlines()[-1:]
            text = "TVM cannot fuse %s; its functions stay apart: %s: %s"
            _logger.warning(text, name.name_hint, type(error).__name__, *said)
    if not failing:
        return mod
    kept = {name: each for name, each in mod.functions_items() if name not in failing}
    for name, function in kept.items():
        if isinstance(function, relax.Function):
            kept[name] = inlined(function, failing)
    return tvm.IRModule(kept, attrs=mod.attrs)


def _failure(mod: tvm.IRModule, name: tvm.ir.GlobalVar, group: relax.Function) -> Exception | None:
    """Why TVM cannot fuse a group, if it cannot."""
    called = {each: mod[each] for each in _called(group)}
    alone = tvm.IRModule({name: group, **called, "caller": _caller(name, group)})
    try:
        _STOCK()(alone)
    except Exception as error:  # TVM's checks raise whatever their code says
        return error
    return None


def _caller(name: tvm.ir.GlobalVar, group: relax.Function) -> relax.Function:
    """A public function that only calls another: FuseTIR leaves out what nobody can reach."""
    parameters = [relax.Var(each.name, each.ty) for each in group.params]
    result = relax.Var("result", group.ret_ty)
    block = relax.BindingBlock([relax.VarBinding(result, relax.Call(name, parameters))])
    caller = relax.Function(parameters, relax.SeqExpr([block], result), group.ret_ty)
    return caller.with_attr("global_symbol", "caller")


def _groups(mod: tvm.IRModule) -> dict[tvm.ir.GlobalVar, relax.Function]:
    """The functions that FuseTIR makes one function of."""
    return {
        name: function
        for name, function in mod.functions_items()
        if isinstance(function, relax.Function) and (function.attrs or {}).get("Primitive", False)
    }


def _called(group: relax.Function) -> Iterator[tvm.ir.GlobalVar]:
    """The functions that a group calls."""
    found: list[Any] = []
    relax.analysis.post_order_visit(group.body, found.append)
    return (each for each in dict.fromkeys(found) if isinstance(each, tvm.ir.GlobalVar))
