"""Uses what is known of indices: those in range need no check, and unique ones no atomics.

``argsort``, ``arange``, ``x % n`` and the like say which values their results can have, whatever
the inputs of the model are. See :mod:`tvm_scatter.passes.analysis.index_rules`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import tvm
from tvm import relax

from tvm_scatter.errors import ScatterError
from tvm_scatter.lowering.own_reads import own_read
from tvm_scatter.lowering.reads import is_read, read_of
from tvm_scatter.lowering.target import strategy_of
from tvm_scatter.ops.names import COPY_RANGES
from tvm_scatter.ops.ordering import order
from tvm_scatter.ops.read_ops import index_tensors
from tvm_scatter.ops.scatter_call import ScatterCall, is_scatter
from tvm_scatter.ops.shapes import static_shape
from tvm_scatter.passes.analysis.bindings import Binding, Bindings
from tvm_scatter.passes.analysis.index_analysis import IndexAnalysis
from tvm_scatter.passes.analysis.index_claims import claims, claims_of_scatter

from .functions import Change, with_values
from .known_orders import ascends, constant_order, is_order
from .may_overwrite import overwriting_pass
from .new_memory import into_new_memory
from .permutations import inverse, is_sort, is_sort_of_permutation, sorted_axis, writes_all
from .report import note


def UseIndexFacts(in_place: bool = True, donate: Sequence[str] = ()) -> tvm.transform.Pass:
    """The pass.

    Parameters
    ----------
    in_place : bool
        Whether ReuseBuffers runs afterwards. Then a scatter writes to what is only allocated here.
    donate : sequence of str
        Names of parameters that the caller gives away, to be overwritten.
    """
    return overwriting_pass("UseIndexFacts", _using, in_place, donate)


def _using(
    mod: tvm.IRModule, name: str, function: relax.Function, kept: Sequence[Any] | None
) -> relax.Function | None:
    """The function whose calls say what is known of their indices; ``None`` if nothing is.

    Parameters
    ----------
    kept : sequence of relax.Var or None
        Variables that scatters are to overwrite; ``None`` if nothing is overwritten.
    """
    bindings = Bindings(function)
    if not any(
        _is_for_us(each.value) or is_sort(each.value) or is_order(each.value) for each in bindings
    ):
        return None
    known = IndexAnalysis(mod, function)
    found: dict[Any, Change] = {}
    for binding in bindings:
        where = f"{name}.{binding.var.name}"
        if is_scatter(binding.value) and _is_for_us(binding.value):
            changed = _scatter(ScatterCall.from_call(binding.value), known, kept, where)
        elif is_order(binding.value):
            changed = _order(binding.value, known, where)
        elif _is_for_us(binding.value):
            changed = _read(binding.value, known, where)
        else:
            changed = _sort(binding, known, kept, where)
        if changed is not None:
            found[binding.var] = changed
    return with_values(mod, function, found) if found else None


def _is_for_us(value: Any) -> bool:
    if not (is_scatter(value) or is_read(value)):
        return False
    return strategy_of(value.args[0])[1] is not None


def _sort(
    binding: Binding, known: IndexAnalysis, kept: Sequence[Any] | None, where: str
) -> Change | None:
    """The inverse of a permutation in place of its sort; ``None`` for anything else."""
    if (
        kept is None
        or not binding.fused
        or not is_sort_of_permutation(binding.var, binding.value, known)
    ):
        return None
    [permutation] = binding.value.args
    extent = permutation.ty.shape.values[sorted_axis(binding.value)]
    found = claims([permutation], [extent], False, known, differ=True)
    if found is None or not (found.in_range and found.unique):
        return None
    note("index_facts", where, f"is the inverse of a permutation, not a sort: {found.words}")
    return lambda emit: inverse(binding.value, emit, found.words)


def _order(call: relax.Call, known: IndexAnalysis, where: str) -> Change | None:
    """An order that is known, or need not be sorted or checked; ``None`` if it must be."""
    index, (extent,), attrs = call.args[0], call.args[1].values, call.attrs
    wraps, operator = bool(attrs["wrap_negative"]), str(attrs["operator"])
    constant = constant_order(index, extent, wraps)
    if constant is not None and not attrs["offsets_only"]:
        note("index_facts", where, "is an order that is known: of a constant")
        return lambda _emit: constant
    found = claims([index], [extent], wraps, known)
    ascending = found is not None and ascends(index, known)
    if found is None or not (found.in_range or ascending):
        return None
    if ascending:
        note("index_facts", where, "orders what ascends already")
    return lambda _emit: order(
        index,
        extent,
        wrap_negative=wraps,
        in_range=found.in_range,
        checked=bool(attrs["checked"]),
        ascending=ascending or bool(attrs["ascending"]),
        offsets_only=bool(attrs["offsets_only"]),
        operator=operator,
    )


def _scatter(
    call: ScatterCall, known: IndexAnalysis, kept: Sequence[Any] | None, where: str
) -> Change | None:
    """The scatter with what is known of its indices; ``None`` if nothing is."""
    if call.form == COPY_RANGES or call.in_range:
        return None
    found = claims_of_scatter(call, known)
    if found is None or not (found.in_range or found.unique):
        return None
    claimed = call.replace(
        in_range=found.in_range,
        unique=call.unique or found.unique,
        wrap_negative=call.wrap_negative and (found.wraps or not found.in_range),
        known=found.words,
    )
    given = kept is None or any(call.data.same_as(each) for each in kept)
    if given or not writes_all(call, found):
        return lambda _emit: claimed.to_call()
    note("index_facts", where, "writes all of its data, which is not read")
    return partial(into_new_memory, claimed)


def _read(call: relax.Call, known: IndexAnalysis, where: str) -> Change | None:
    """The read without a check; ``None`` if it needs one, or has none already."""
    try:
        read = read_of(call)
    except ScatterError:
        return None
    shape = static_shape(call.args[0])
    if read is None or shape is None or read.is_in_range():
        return None
    extents = [shape[axis] for axis in read.form.addressed]
    found = claims(index_tensors(call), extents, read.check.wrap_negative, known)
    if found is None or not found.in_range:
        return None
    note("index_facts", where, f"reads unchecked: {found.words}")
    data, indices, wraps = call.args[0], index_tensors(call), found.wraps
    return lambda _emit: own_read(data, indices, read, wrap_negative=wraps, in_range=True)
