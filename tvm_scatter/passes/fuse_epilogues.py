"""Lets a scatter compute what follows it where it writes its result.

A layer adds a bias to what it has summed, scales it, adds what it started from, and takes an
activation. An implementation that writes each row once does so before it writes, so that the sums
are never in memory. Whether one is chosen that does is decided by the predicted times: the others
take one more launch that reads the result and writes it again.

It runs before :func:`ReuseBuffers`. The scatter then reads the tensors that follow it itself, so
that the proof that data may be overwritten counts them.
"""

from __future__ import annotations

from math import prod
from typing import Any

import tvm
from tvm import relax

from tvm_scatter.errors import ScatterError
from tvm_scatter.lowering.inlined import Inliner, NotInlined, leaves_of
from tvm_scatter.lowering.plan import Plan, Way, plan
from tvm_scatter.lowering.target import strategy_of
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.epilogue import Epilogue
from tvm_scatter.ops.names import COPY_RANGES
from tvm_scatter.ops.scatter_call import ScatterCall, is_scatter
from tvm_scatter.ops.shapes import static_shape
from tvm_scatter.options import current_options
from tvm_scatter.passes.analysis.bindings import Binding, Bindings
from tvm_scatter.passes.analysis.followers import Followers, FollowerSearch
from tvm_scatter.passes.analysis.known_values import numbers

from .functions import with_changes, with_values
from .report import note

#: Elements of a result.
_SMALL = 1 << 18


def FuseEpilogues() -> tvm.transform.Pass:
    """The pass."""

    def fuse(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        return with_changes(mod, lambda name, function: _fused(mod, name.name_hint, function))

    return tvm.transform.module_pass(fuse, opt_level=0, name="FuseEpilogues")


def _fused(mod: tvm.IRModule, name: str, function: relax.Function) -> relax.Function | None:
    """The function whose scatters compute what follows them; ``None`` if none does."""
    bindings = Bindings(function)
    found: dict[Any, relax.Expr] = {}
    taken: set[Any] = set()
    search = FollowerSearch(bindings)
    for binding in _candidates(bindings):
        followers = search.behind(binding, taken)
        if followers is None:
            continue
        where = f"{name}.{binding.var.name}"
        try:
            call = _with_epilogue(followers)
        except NotInlined as reason:
            note("epilogue", where, f"is written before what follows: {reason}")
            continue
        found[followers.last.var] = call.to_call()
        computed = (*followers.operands, *followers.bindings)
        taken |= {each.var for each in computed}
        names = ", ".join(operator_of(each.value).removeprefix("relax.") for each in computed)
        note("epilogue", where, f"computes what follows where it is written: {names}")
    return with_values(mod, function, found) if found else None


def _candidates(bindings: Bindings) -> list[Binding]:
    found = [binding for binding in bindings if _is_candidate(binding)]
    large = [binding for binding in found if not _is_small(binding)]
    # One launch for all small ones is better.
    return large if len(found) > len(large) + 1 and not current_options().epilogue else found


def _is_candidate(binding: Binding) -> bool:
    if not binding.fused or not is_scatter(binding.value):
        return False
    call = ScatterCall.from_call(binding.value)
    if call.form == COPY_RANGES or call.in_place or call.epilogue is not None:
        return False
    strategy = strategy_of(call.data)[1]
    return (
        strategy is not None
        and strategy.backend.finishes_under(current_options())
        and str(call.data.ty.dtype) != "bool"
    )


def _is_small(binding: Binding) -> bool:
    """Whether launches are most of what a scatter takes."""
    sizes = numbers(static_shape(binding.var))
    return sizes is not None and prod(sizes) < _SMALL


def _with_epilogue(followers: Followers) -> ScatterCall:
    """The scatter with what follows it.

    Raises
    ------
    NotInlined
        If an element is not one expression, or it would take longer.
    """
    scatter = followers.scatter
    calls = {each.var: each.value for each in (*followers.operands, *followers.bindings)}
    own, last = scatter.var, followers.last.var
    others = [leaf for leaf in leaves_of(calls, [own]) if not leaf.same_as(own)]
    inliner = Inliner([own, *others])
    for var, call in calls.items():
        inliner.add(var, call)
    call = ScatterCall.from_call(scatter.value)
    finished = call.replace(epilogue=Epilogue(inliner.function(last), tuple(others)))
    _check_pays(call, finished)
    return finished


def _check_pays(call: ScatterCall, finished: ScatterCall) -> None:
    """Raise if no implementation that computes what follows is predicted to take least."""
    planned = _planned(finished)
    same_type = finished.ty.dtype == call.data.ty.dtype
    # Of another type only those can be compared that compute it themselves.
    decides = planned if same_type else _planned(call)
    chosen = [] if decides.selection is None else decides.selection.branches
    finishes = [branch.implementation.finishes for branch in chosen]
    if not finishes or not (any(finishes) if same_type else all(finishes)):
        names = " or ".join(branch.implementation.name for branch in chosen)
        raise NotInlined(f"it is computed by {names or 'nothing of this package'}")


def _planned(call: ScatterCall) -> Plan:
    """The plan for a scatter.

    Raises
    ------
    NotInlined
        If no implementation computes it.
    """
    target = strategy_of(call.data)[0]
    try:
        planned = plan(call.to_call(), target, current_options())
    except ScatterError as error:
        raise NotInlined(str(error)) from error
    if planned.way is not Way.SCATTER:
        raise NotInlined(planned.reason)
    return planned
