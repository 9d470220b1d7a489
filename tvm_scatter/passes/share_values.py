"""Computes what a function computes several times only once, where that is worth the memory.

Every layer of a graph network computes the same of its edges: a mask of loops, the edges without
them, degrees, norms. How many edges are left only the data say, so each layer has a size of its
own for it. TVM's ``EliminateCommonSubexpr`` takes these for different. It also merges what is
better computed anew: rows for each edge, and the zeros that scatters overwrite.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import Var

from tvm_scatter.ops.scatter_call import ScatterCall, is_scatter

from .analysis.aliasing import Storage
from .analysis.bindings import Bindings
from .analysis.equal_values import EqualValues
from .analysis.worth_keeping import is_worth_keeping
from .functions import with_changes
from .report import note


def ShareValues() -> tvm.transform.Pass:
    """The pass."""

    def share(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        return with_changes(mod, lambda name, function: _shared(name.name_hint, function))

    return tvm.transform.module_pass(share, opt_level=0, name="ShareValues")


def _shared(name: str, function: relax.Function) -> relax.Function | None:
    """The function without what is computed again, or ``None`` if nothing is."""
    equal = EqualValues(function)
    if not equal.first:
        return None
    bindings = Bindings(function)
    kept = _kept(function, bindings, equal)
    if not kept and not equal.sizes:
        return None
    shared = relax.analysis.remove_all_unused(_replaced(function, kept, equal.sizes))
    left = {binding.var.name for binding in Bindings(shared)}
    readers = bindings.readers()
    for later, first in kept.items():
        # What only repeated values read is not worth a word.
        read = later in bindings.returned or any(
            each.var.name in left for each in readers.get(later, ())
        )
        if read and isinstance(later.ty, relax.TensorType):
            note("share_values", f"{name}.{later.name}", f"is {first.name}, computed once")
    return shared


def _kept(function: relax.Function, bindings: Bindings, equal: EqualValues) -> dict[Any, Any]:
    """The variables that earlier ones stand for."""
    data = set(_overwritable(bindings))
    storage = Storage(function, bindings)

    def is_returned(var: Any) -> bool:
        return bool(storage.members(var) & bindings.returned)

    return {
        later: first
        for later, first in equal.first.items()
        if is_worth_keeping(equal.values[later])
        and not {later, first} & data
        # Callers may write to one of the tensors that they get.
        and not (is_returned(later) and is_returned(first))
    }


def _overwritable(bindings: Bindings) -> Iterator[Any]:
    """What scatters begin with, and overwrite if nothing else reads it."""
    for binding in bindings:
        if is_scatter(binding.value):
            yield ScatterCall.from_call(binding.value).data


def _replaced(
    function: relax.Function, kept: Mapping[Any, Any], sizes: Mapping[Any, Any]
) -> relax.Function:
    """The function with other variables and sizes, and without the bindings of those."""
    blocks = [_without(block, kept) for block in function.body.blocks]
    body = relax.SeqExpr(blocks, function.body.body)
    instead = {**kept, **sizes}
    # From the root on, so that variables are found before their own types change.
    body = tvm_ffi.structural_map(body, (Var, lambda var: instead.get(var, var)), order="pre")
    return relax.Function(
        function.params, body, function.ret_ty, function.is_pure, function.attrs, function.span
    )


def _without(block: relax.BindingBlock, dropped: Container[Any]) -> relax.BindingBlock:
    left = [each for each in block.bindings if each.var not in dropped]
    return type(block)(left)
