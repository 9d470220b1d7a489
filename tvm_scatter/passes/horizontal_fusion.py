"""Merges independent scatters of one shape into one call.

On a GPU the call takes as many launches as one of the scatters alone. That is faster where launches
take most of the time. The scatters keep their tensors: nothing is concatenated.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_scatter.lowering.batched import batch, describe, earlier_of, is_batch, waiting_for
from tvm_scatter.lowering.target import strategy_of
from tvm_scatter.ops.fused_updates import FusedUpdates
from tvm_scatter.ops.names import COPY_RANGES
from tvm_scatter.ops.scatter_call import ScatterCall, is_scatter
from tvm_scatter.ops.shapes import static_shape
from tvm_scatter.options import current_options
from tvm_scatter.passes.analysis.bindings import Binding, Bindings
from tvm_scatter.passes.analysis.created import is_created
from tvm_scatter.passes.analysis.definitions import Definitions
from tvm_scatter.passes.analysis.dependence import independent, order, overwritten, predecessors
from tvm_scatter.passes.analysis.known_values import numbers
from tvm_scatter.passes.analysis.overwritable import delayable

from .chains import LAUNCH_BYTES
from .functions import with_changes, with_values
from .report import note

#: A scatter that moves more bytes than this is not merged. Merging twelve of 17 MB gains a sixth of
#: the time; larger ones were not measured.
_SMALL_BYTES = 20 << 20
#: The largest number of scatters in one call: each adds its tensors to the parameters.
_MOST_SCATTERS = 32


def HorizontalFusion(always: bool = False) -> tvm.transform.Pass:
    """The pass.

    Parameters
    ----------
    always : bool
        Whether to merge large scatters and scatters for a CPU, too.
    """

    def run(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        return with_changes(
            mod, lambda name, function: _batch_function(mod, name.name_hint, function, always)
        )

    return tvm.transform.module_pass(run, opt_level=0, name="HorizontalFusion")


def _batch_function(
    mod: tvm.IRModule, name: str, function: relax.Function, always: bool
) -> relax.Function | None:
    """The function with its scatters merged, or ``None`` if none can be merged."""
    bindings = Bindings(function)
    kinds = {
        binding.at: kind for binding in bindings if (kind := _kind(binding, always)) is not None
    }
    if len(kinds) < 2:
        return None
    before = predecessors(function, bindings)
    orders: dict[Any, list[list[int]]] = {}
    for block in _dataflow_blocks(bindings):
        # Bindings outside of the block are not reordered.
        start = block[0].at
        inside = [{at - start for at in before[binding.at] if at >= start} for binding in block]
        known = {binding.at - start: kinds[binding.at] for binding in block if binding.at in kinds}
        groups = independent(inside, known, _MOST_SCATTERS)
        if groups:
            orders[block[0].var] = order(inside, groups)
    if not orders:
        return None
    values = Definitions.of(function).values
    batched = _Batcher(mod, orders, values).visit_expr(function)
    # Scatters that now start from the same zeros leave other zeros unused.
    batched = relax.analysis.remove_all_unused(batched)
    waiting = _waiting(batched)
    if waiting is None:
        return None
    batched = with_values(mod, batched, waiting)
    for binding in Bindings(batched):
        if is_batch(binding.value):
            note("batch", f"{name}.{binding.var.name}", f"is {describe(binding.value)} at once")
    return batched


def _dataflow_blocks(bindings: Bindings) -> list[list[Binding]]:
    blocks: dict[int, list[Binding]] = {}
    for binding in bindings:
        if binding.fused:
            blocks.setdefault(binding.fused, []).append(binding)
    return list(blocks.values())


def _kind(binding: Binding, always: bool) -> Hashable | None:
    """A key that is equal for scatters that can be merged; ``None`` if this one must stay alone."""
    if not binding.fused or not is_scatter(binding.value):
        return None
    call = ScatterCall.from_call(binding.value)
    if call.form == COPY_RANGES or isinstance(call.updates, FusedUpdates):
        return None
    if call.ordering or call.epilogue is not None:
        return None
    _, strategy = strategy_of(call.data)
    # Under ``raise`` the host waits for each check, and launches are not what takes time.
    if strategy is None or strategy.backend.bounds_under(current_options()) == "raise":
        return None
    shapes = [numbers(static_shape(tensor)) for tensor in call.tensors]
    if any(shape is None or 0 in shape for shape in shapes):
        return None
    cheap = not strategy.backend.launches_together or _moved_bytes(call) > _SMALL_BYTES
    if cheap and not always:
        return None
    types = tuple(str(tensor.ty) for tensor in call.tensors)
    facts = {"unique": False, "in_range": False, "known": ""}
    return call.replace(data=None, indices=(), updates=None, earlier=(), **facts), types


def _moved_bytes(call: ScatterCall) -> int:
    """Bytes that a scatter moves, not counting its reads of the output if it reduces."""
    data, *indices, updates = map(_bytes, call.tensors)
    return sum(indices) + 2 * updates + (0 if call.in_place else 2 * data)


def _bytes(tensor: Any) -> int:
    width: int = (tvm.DataType(str(tensor.ty.dtype)).bits + 7) // 8
    return width * int(np.prod(numbers(static_shape(tensor)) or (), dtype=np.int64))


@mutator
class _Batcher(PyExprMutator):
    """Reorders dataflow blocks and merges groups; a block is known by its first variable."""

    def __init__(
        self,
        mod: tvm.IRModule,
        orders: Mapping[Any, Sequence[Sequence[int]]],
        values: Mapping[Any, Any],
    ) -> None:
        super().__init__(mod)
        self.orders = orders
        self.values = values

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.DataflowBlock:
        order_of_block = self.orders.get(block.bindings[0].var) if block.bindings else None
        if order_of_block is not None:
            found: list[Any] = []
            for places in order_of_block:
                bindings = [block.bindings[at] for at in places]
                found += bindings if len(bindings) == 1 else _together(bindings, self.values)
            block = relax.DataflowBlock(found)
        return super().visit_dataflow_block_(block)


def _together(bindings: Sequence[Any], values: Mapping[Any, Any]) -> list[Any]:
    """A binding of the merged call, and one for each scatter's variable, bound to its result."""
    scatters = [ScatterCall.from_call(binding.value) for binding in bindings]
    scatters = _knowing_as_much(_sharing_data(scatters, values))
    earlier = dict.fromkeys(each for call in scatters for each in call.earlier)
    call = batch(scatters, list(earlier))
    types = relax.TupleType([binding.var.ty for binding in bindings])
    results = relax.DataflowVar(f"{bindings[-1].var.name}_together", types)
    return [
        relax.VarBinding(results, call),
        *(
            relax.VarBinding(binding.var, relax.TupleGetItem(results, at))
            for at, binding in enumerate(bindings)
        ),
    ]


def _knowing_as_much(scatters: list[ScatterCall]) -> list[ScatterCall]:
    """The scatters with those facts about their indices that hold for all of them."""
    known = dict.fromkeys(call.known for call in scatters)
    facts: dict[str, Any] = {
        "unique": all(call.unique for call in scatters),
        "in_range": all(call.in_range for call in scatters),
        "known": known.popitem()[0] if len(known) == 1 else "",
    }
    return [call.replace(**facts) for call in scatters]


def _sharing_data(scatters: list[ScatterCall], values: Mapping[Any, Any]) -> list[ScatterCall]:
    """The scatters with one data tensor for all, if their data are equal and new, such as zeros."""
    made = [values.get(call.data) for call in scatters]
    # Shared data must be copied by each scatter; that pays only where creating it costs a launch.
    if _bytes(scatters[0].data) > LAUNCH_BYTES:
        return scatters
    if not all(is_created(each) and tvm_ffi.structural_equal(each, made[0]) for each in made):
        return scatters
    data = scatters[0].data
    return [call.replace(data=data, in_place=False) for call in scatters]


def _waiting(function: relax.Function) -> dict[Any, relax.Expr] | None:
    """In-place scatters that wait for the tensors to compute before them in the new order.

    They are given by their variables. ``None`` if the order cannot be ensured for one of them.
    """
    bindings = Bindings(function)
    found: dict[Any, relax.Expr] = {}
    for binding, written in zip(bindings, overwritten(function, bindings), strict=True):
        if not written or not (is_scatter(binding.value) or is_batch(binding.value)):
            continue
        earlier = delayable(binding, bindings, written)
        if earlier is None:
            return None
        known = _earlier(binding.value)
        new = [each for each in earlier if each not in known]
        if new:
            found[binding.var] = _waiting_for(binding.value, (*known, *new))
    return found


def _earlier(call: relax.Call) -> tuple[Any, ...]:
    return earlier_of(call) if is_batch(call) else ScatterCall.from_call(call).earlier


def _waiting_for(call: relax.Call, earlier: tuple[Any, ...]) -> relax.Call:
    if is_batch(call):
        return waiting_for(call, earlier)
    return ScatterCall.from_call(call).replace(earlier=earlier).to_call()
