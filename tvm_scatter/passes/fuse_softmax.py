"""Makes a softmax over the updates of each destination, and the sum that it weights, one scatter.

In front of it stands the order of the updates, one for all softmaxes over one index, unless there
are few of either. The updates of a destination are then visited together, and the scatter keeps a
maximum and a sum while it adds (M. Milakov and N. Gimelshein, "Online normalizer calculation for
softmax", arXiv 1805.02867, 2018).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import tvm
from tvm import relax

from tvm_scatter.emit.ordering import DTYPE
from tvm_scatter.errors import ScatterError
from tvm_scatter.lowering.inlined import Inliner
from tvm_scatter.lowering.plan import Way, plan
from tvm_scatter.lowering.target import strategy_of
from tvm_scatter.ops.fused_updates import PLAIN, FusedUpdates
from tvm_scatter.ops.ordering import emitted_order, order
from tvm_scatter.ops.scatter_call import ScatterCall
from tvm_scatter.ops.shapes import same_shape, same_size, static_shape
from tvm_scatter.options import current_options
from tvm_scatter.passes.analysis.bindings import Bindings
from tvm_scatter.passes.analysis.definitions import Definitions
from tvm_scatter.passes.analysis.effects import may_write
from tvm_scatter.passes.analysis.same_value import SameValue
from tvm_scatter.passes.analysis.softmax import Softmax, SoftmaxSearch
from tvm_scatter.problem.reductions import HALVES

from .functions import Emit, with_changes, with_values
from .report import note

#: An order pays if so many softmaxes share it, even where a scatter can do without. An H200 takes 8
#: us to order 10 556 updates, and some 7 for each scatter by the order instead of 11.
_MANY = 3
#: What a softmax is computed in where sums in memory would each be rounded to 16 bits.
_WIDER = "float32"


def FuseSoftmax() -> tvm.transform.Pass:
    """The pass."""

    def fuse(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        if current_options().implementation is not None:
            # Of the implementations, only the caller's may be used.
            return mod
        return with_changes(mod, lambda name, function: _fused(mod, name.name_hint, function))

    return tvm.transform.module_pass(fuse, opt_level=0, name="FuseSoftmax")


def _fused(mod: tvm.IRModule, name: str, function: relax.Function) -> relax.Function | None:
    """The function with softmaxes in scatters, or ``None`` if there are none."""
    definitions = Definitions.of(function)
    search, found = SoftmaxSearch(definitions), {}
    bindings = Bindings(function)
    if any(may_write(binding.value) for binding in bindings):
        # Its operands would have to be proved to be what they were at each of its steps.
        return None
    for binding in bindings:
        softmax = search.softmax(binding.value) if binding.fused else None
        if softmax is None:
            continue
        operands = (softmax.values, softmax.logits, softmax.call.data, softmax.call.indices[0])
        if not definitions.reaches_all(
            [each for each in operands if isinstance(each, relax.Var)], binding.var
        ):
            continue
        if not _is_wanted(softmax):
            continue
        where = f"{name}.{binding.var.name}"
        refusals = {}
        for dtype in _dtypes(softmax):
            refusals[dtype] = _refusal(softmax, dtype)
            if refusals[dtype] is None:
                break
        else:
            [refusal, *_] = refusals.values()
            note("fuse", where, f"weights its updates by a softmax in memory: {refusal}")
            continue
        found[binding.var] = softmax, dtype
        inside = "" if len(refusals) == 1 else f" in {dtype}"
        note("fuse", where, f"computes the softmax that weights its updates itself{inside}")
    scatters = _Scatters(definitions.blocks, search.same, found)
    changes = {var: partial(scatters.scatter, var, *each) for var, each in found.items()}
    return with_values(mod, function, changes) if changes else None


def _is_wanted(softmax: Softmax) -> bool:
    strategy = strategy_of(softmax.call.data)[1]
    return strategy is None or strategy.backend.fuses_under(current_options())


def _dtypes(softmax: Softmax) -> list[str]:
    """The types to compute a softmax in, the best first."""
    own = str(softmax.call.data.ty.dtype)
    return [own, _WIDER] if own in HALVES else [own]


def _refusal(softmax: Softmax, dtype: str) -> str | None:
    """Why no scatter computes a softmax in a type; ``None`` if one does."""
    call = softmax.call
    target, strategy = strategy_of(call.data)
    if strategy is None or strategy.backend.ordering is None:
        return f"nothing orders updates on target {target.kind.name}"
    if call.leaves_out and not call.ordering:
        return "it leaves out updates, and who makes an order reports bad indices"
    index, extent = call.indices[0], static_shape(call.data)[0]  # type: ignore[index]
    places = _room([extent + 1])
    permutation = _room(index.ty.shape.values)
    try:
        order(index, extent, operator=call.operator)
        return _not_planned(softmax, dtype, call.ordering or (permutation, places))
    except ScatterError as error:
        return str(error)


def _needs_no_order(softmax: Softmax, dtype: str) -> bool:
    try:
        return _not_planned(softmax, dtype, ()) is None
    except ScatterError:
        return False


def _not_planned(softmax: Softmax, dtype: str, ordering: tuple[Any, ...]) -> str | None:
    """Why what is given such an order is no scatter; ``None`` if it is.

    Raises
    ------
    ScatterError
        If nothing takes it.
    """
    call = softmax.call
    type_ = relax.TensorType(call.updates.ty.shape.values, dtype)
    values, logits = (relax.Var(name, type_) for name in ("values", "logits"))
    data = relax.Var("data", relax.TensorType(call.data.ty.shape, dtype))
    tried = _weighted(call.replace(data=data), values, logits, ordering)
    planned = plan(tried.to_call(), strategy_of(call.data)[0], current_options())
    return None if planned.way is Way.SCATTER else planned.reason


def _room(shape: Any) -> Any:
    return relax.Var("room", relax.TensorType(shape, DTYPE))


def _weighted(
    call: ScatterCall, values: Any, logits: Any, ordering: tuple[Any, ...]
) -> ScatterCall:
    """The scatter of values, weighted by the softmax of logits.

    Raises
    ------
    NotInlined
        If the symbolic sizes of the values are not those of a tensor.
    """
    leaves = (values, logits)
    function = Inliner(leaves).function(*leaves).with_attr(PLAIN, True)
    return call.replace(
        updates=FusedUpdates(function, leaves), include_self=False, ordering=ordering
    )


class _Scatters:
    """Makes the scatters, and the orders that they share."""

    def __init__(
        self, blocks: Mapping[Any, int], same: SameValue, found: Mapping[Any, tuple[Softmax, str]]
    ) -> None:
        self._blocks, self._same, self._found = blocks, same, found
        #: The orders that were made, each for the first variable that needs it.
        self._orders: dict[Any, tuple[Any, ...]] = {}

    def scatter(self, var: Any, softmax: Softmax, dtype: str, emit: Emit) -> relax.Expr:
        """What stands in place of the call that a variable is bound to."""
        own = str(softmax.call.data.ty.dtype)
        if dtype != own:
            call = softmax.call
            zeros = emit(relax.op.zeros(call.data.ty.shape, dtype))
            values, logits = (
                emit(relax.op.astype(each, dtype)) for each in (softmax.values, softmax.logits)
            )
            wide = replace(softmax, call=call.replace(data=zeros), values=values, logits=logits)
            return relax.op.astype(emit(self.scatter(var, wide, dtype, emit)), own)
        values, shape = softmax.values, softmax.call.updates.ty.shape
        if not same_shape(values.ty.shape.values, shape.values):
            values = emit(relax.op.broadcast_to(values, shape))
        logits = softmax.viewed(softmax.logits, emit)
        return _weighted(softmax.call, values, logits, self._ordering(var, emit)).to_call()

    def _ordering(self, var: Any, emit: Emit) -> tuple[Any, ...]:
        """The order for a softmax, or nothing where it goes without."""
        softmax, dtype = self._found[var]
        call = softmax.call
        if call.ordering:
            return call.ordering
        sharing = [each for each in self._found if self._share(each, var)]
        if len(sharing) < _MANY and _needs_no_order(softmax, dtype):
            return ()
        for each in sharing:
            if each in self._orders:
                return self._orders[each]
        extent = static_shape(call.data)[0]  # type: ignore[index]
        wraps, operator = call.wrap_negative, call.operator
        made = emitted_order(emit, call.indices[0], extent, wrap_negative=wraps, operator=operator)
        self._orders[var] = made
        return made

    def _share(self, left: Any, right: Any) -> bool:
        """Whether one order serves the softmaxes that two variables are bound to."""
        (one, _), (other, _) = self._found[left], self._found[right]
        extents = [static_shape(each.call.data)[0] for each in (one, other)]  # type: ignore[index]
        return (
            self._blocks[left] == self._blocks[right]
            and not (one.call.ordering or other.call.ordering)
            and one.call.wrap_negative == other.call.wrap_negative
            and same_size(*extents)
            and self._same(one.call.indices[0], other.call.indices[0])
        )
