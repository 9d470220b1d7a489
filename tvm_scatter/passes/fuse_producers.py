"""Lets a scatter compute its updates where it reads them, so that they are never in memory.

A model gathers, computes a message for each edge and scatters the messages. Those take far more
memory than what they are computed from. This pass makes the operators that compute the updates a
part of the scatter: reads by index, broadcasts, reshapes, casts and elementwise arithmetic.

It runs before :func:`ReuseBuffers`. The scatter then reads the leaves itself, so that the proof
that data may be overwritten counts them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_scatter.emit.computed_updates import OWN_INDEX
from tvm_scatter.emit.single_precision import takes_too_long
from tvm_scatter.errors import ScatterError
from tvm_scatter.lowering.added_rows import is_short_sum
from tvm_scatter.lowering.inlined import Inliner, NotInlined, leaves_of
from tvm_scatter.lowering.inlined_sums import RowSum
from tvm_scatter.lowering.lower import lower
from tvm_scatter.lowering.neighbours import reads_neighbours, refusal_of_sums
from tvm_scatter.lowering.target import strategy_of, target_of
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.fused_updates import FusedUpdates
from tvm_scatter.ops.names import COPY_RANGES
from tvm_scatter.ops.scatter_call import ScatterCall, is_scatter
from tvm_scatter.ops.shapes import static_shape
from tvm_scatter.options import current_options
from tvm_scatter.passes.analysis.aliasing import Storage
from tvm_scatter.passes.analysis.bindings import Binding, Bindings
from tvm_scatter.passes.analysis.known_values import numbers
from tvm_scatter.passes.analysis.overwritable import donated_parameters, overwrites
from tvm_scatter.passes.analysis.same_value import SameValue
from tvm_scatter.passes.analysis.summed_logits import summed_logits, without_unused_sums
from tvm_scatter.passes.analysis.taken_producers import taken_producers
from tvm_scatter.selection.backend import backend_of

from .checks_in_front import Checks
from .functions import with_changes
from .report import note


def FuseProducers(donate: Sequence[str] = ()) -> tvm.transform.Pass:
    """The pass.

    Parameters
    ----------
    donate : sequence of str
        Names of parameters that scatters may overwrite.
    """

    def fuse(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        fused = partial(_fused, mod, donate=tuple(donate))
        return without_unused_sums(with_changes(mod, fused))

    return tvm.transform.module_pass(fuse, opt_level=0, name="FuseProducers")


def _fused(
    mod: tvm.IRModule, name: Any, function: relax.Function, *, donate: tuple[str, ...]
) -> relax.Function | None:
    """The function with its updates fused, or ``None`` if there are none to fuse."""
    bindings = Bindings(function)
    scatters = {binding.var: binding for binding in bindings if _is_candidate(binding)}
    if not scatters:
        return None
    fusions, adding = _Fusions(mod, name, function, bindings, scatters, donate), set(scatters)
    fusions.find(adding)
    while fusions.too_long:
        # Without the sums that it cannot add up, a scatter may compute what follows them.
        adding -= fusions.too_long
        fusions.find(adding)
    for where, text in fusions.notes:
        note("fuse", where, text)
    if not fusions.found:
        return None
    rewritten = _Rewriter(mod, fusions.found, fusions.checked).visit_expr(function)
    return relax.analysis.remove_all_unused(rewritten)


class _Fusions:
    """What the scatters of a function compute themselves.

    Attributes
    ----------
    found : dict
        The updates as functions of leaves, by the variable of their scatter.
    checked : dict
        The reads by index whose indices must be checked, by the same.
    notes : list of (str, str)
        Where what is computed, or why it is not.
    too_long : set
        Scatters that cannot compute their updates, of which a sum of rows is a part.
    """

    def __init__(
        self,
        mod: tvm.IRModule,
        name: Any,
        function: relax.Function,
        bindings: Bindings,
        scatters: Mapping[Any, Binding],
        donate: tuple[str, ...],
    ) -> None:
        self._mod, self._name = mod, name.name_hint
        self._bindings, self._scatters = bindings, scatters
        self._reusing: Mapping[Any, Any] = {}
        if current_options().in_place:
            donated = donated_parameters(mod, name, donate)
            self._reusing = overwrites(function, donated).found
        self._storage = Storage(function, bindings)
        self._readers = bindings.readers()
        self._same = SameValue({each.var: each.value for each in bindings})

    def find(self, adding: Set[Any]) -> None:
        """Find them; those of ``adding`` may add up a few rows."""
        self.found: dict[Any, FusedUpdates] = {}
        self.checked: dict[Any, list[relax.Call]] = {}
        self.notes: list[tuple[str, str]] = []
        self.too_long: set[Any] = set()
        taken = taken_producers(self._bindings, self._scatters, adding)
        for var, scatter in self._scatters.items():
            where, producers = f"{self._name}.{var.name}", taken.producers(var)
            try:
                refused = taken.refused.get(var, "nothing computes them")
                updates = self._computed(where, scatter, producers, refused)
            except NotInlined as reason:
                if any(is_short_sum(each.value) for each in producers):
                    self.too_long.add(var)
                self.notes.append((where, f"reads its updates from memory: {reason}"))
                continue
            self.found[var] = updates
            self.checked[var] = [each.value for each in producers if each in taken.checked]
            names = _names(producers, updates)
            self.notes.append((where, f"computes its updates itself: {names}"))

    def _computed(
        self, where: str, scatter: Binding, producers: Sequence[Binding], refused: str
    ) -> FusedUpdates:
        """The updates of a scatter as a function of leaves.

        Raises
        ------
        NotInlined
            If it has to read them from memory; ``refused`` says why if nothing can be computed.
        """
        _check_backend(scatter)
        row_sum = summed_logits(self._mod, self._bindings, self._readers, scatter, producers)
        updates: FusedUpdates | None = None
        if row_sum is not None:
            updates = self._with_sums(where, scatter, producers, row_sum)
        if updates is None and not producers:
            raise NotInlined(refused)
        updates = _knowing(updates or _updates(scatter, producers), scatter, self._same)
        _check_rows(scatter, updates)
        if scatter.var in self._reusing:
            _check_copy(scatter, updates, self._storage)
        return updates

    def _with_sums(
        self, where: str, scatter: Binding, producers: Sequence[Binding], row_sum: RowSum
    ) -> FusedUpdates | None:
        """The updates, with logits that are computed from sums; ``None`` if sums are read."""
        call = ScatterCall.from_call(scatter.value)
        values, logits = call.stored_updates
        try:
            leaves = leaves_of(
                {**{each.var: each.value for each in producers}, row_sum.var: row_sum.call},
                (values, logits),
            )
            inliner = Inliner(leaves)
            inliner.add_unknown(row_sum.var)
            for each in producers:
                inliner.add_producer(each.var, each.value)
            function = inliner.with_terms(values, logits, row_sum.var, row_sum.terms)
            updates = FusedUpdates(function, tuple(leaves))
            target = target_of(call.data)
            lowered = lower(call.replace(updates=updates), current_options(), target.kind.name)
            refusal = refusal_of_sums(lowered)
            if refusal is not None:
                raise NotInlined(refusal)
        except NotInlined as reason:
            text = f"reads sums along rows for its logits from memory: {reason}"
            self.notes.append((where, text))
            return None
        return updates


def _names(producers: Sequence[Binding], updates: FusedUpdates) -> str:
    """What a scatter computes."""
    names = [operator_of(each.value).removeprefix("relax.") for each in producers]
    return ", ".join([*names, *(["sums along rows"] if updates.sums_logits else [])])


def _is_candidate(binding: Binding) -> bool:
    if not binding.fused or not is_scatter(binding.value):
        return False
    call = ScatterCall.from_call(binding.value)
    if call.form == COPY_RANGES or not call.stored_updates:
        return False
    strategy = strategy_of(call.data)[1]
    if strategy is None or not strategy.backend.fuses_under(current_options()):
        return False
    return any(isinstance(each, relax.Var) for each in call.stored_updates)


def _check_backend(scatter: Binding) -> None:
    """Raise if no implementation can compute the updates of a scatter."""
    call = ScatterCall.from_call(scatter.value)
    target, strategy = strategy_of(call.data)
    dtype = str(call.updates.ty.dtype)
    if strategy is None or dtype not in strategy.backend.fuses:
        raise NotInlined(f"{dtype} is not computed by a scatter on {target.kind.name}")


def _check_rows(scatter: Binding, updates: FusedUpdates) -> None:
    """Raise if the updates are not computed as they are read, or by a CPU one by one."""
    call = ScatterCall.from_call(scatter.value).replace(updates=updates)
    target = target_of(call.data)
    try:
        lowered = lower(call, current_options(), target.kind.name)
    except ScatterError as error:
        raise NotInlined("it is not valid") from error
    if lowered.producer is None:
        raise NotInlined("they are put into another order first")
    backend = backend_of(target)
    if backend.widens(lowered.problem.data_dtype):
        if lowered.problem.width.is_one:
            raise NotInlined("single elements of bfloat16 are computed faster apart")
        if any(takes_too_long(store.value) for store in lowered.producer.stores):
            raise NotInlined("so many steps, each rounded to bfloat16, take too long to compile")
    if backend.fuses_vectors_only and not reads_neighbours(lowered):
        raise NotInlined("neighbours in a row are computed from what are no neighbours")


def _updates(scatter: Binding, producers: Sequence[Binding]) -> FusedUpdates:
    """The updates of a scatter as a function of leaves.

    Raises
    ------
    NotInlined
        If an element is not one expression, or of too many tensors.
    """
    roots = ScatterCall.from_call(scatter.value).stored_updates
    leaves = leaves_of({each.var: each.value for each in producers}, roots)
    inliner = Inliner(leaves)
    for each in producers:
        inliner.add_producer(each.var, each.value)
    return FusedUpdates(inliner.function(*roots), tuple(leaves))


def _knowing(updates: FusedUpdates, scatter: Binding, same: SameValue) -> FusedUpdates:
    """The updates, which know which of their leaves are the index of the scatter."""
    indices = ScatterCall.from_call(scatter.value).indices
    own = [
        at
        for at, leaf in enumerate(updates.leaves)
        if isinstance(leaf, relax.Var) and len(indices) == 1 and same(leaf, indices[0])
    ]
    return FusedUpdates(updates.function.with_attr(OWN_INDEX, own), updates.leaves)


def _check_copy(scatter: Binding, updates: FusedUpdates, storage: Storage) -> None:
    """Raise if a scatter that overwrites its data would have to copy it once it is fused.

    It reads the data as a leaf then. The copy may cost more than the updates in memory.
    """
    call = ScatterCall.from_call(scatter.value)
    shared = storage.members(call.data)
    if not any(leaf in shared for leaf in updates.leaves if isinstance(leaf, relax.Var)):
        return
    data, made = _bytes(call.data), _bytes(call.updates)
    if data is None or made is None or data > made:
        raise NotInlined(f"it would have to copy {call.data.name}, which it can overwrite")


def _bytes(tensor: Any) -> int | None:
    sizes = numbers(static_shape(tensor))
    if sizes is None:
        return None
    width = (tvm.DataType(str(tensor.ty.dtype)).bits + 7) // 8
    return int(np.prod(sizes, dtype=np.int64)) * width


@mutator
class _Rewriter(PyExprMutator):
    def __init__(
        self,
        mod: tvm.IRModule,
        fused: Mapping[Any, FusedUpdates],
        checked: Mapping[Any, Sequence[relax.Call]],
    ) -> None:
        super().__init__(mod)
        self.fused = fused
        self.checked = checked
        self.checks = Checks(self)

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.DataflowBlock:
        self.checks = Checks(self)
        return super().visit_dataflow_block_(block)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        updates = self.fused.get(binding.var)
        if updates is not None:
            leaves = self.checks.before(updates.leaves, self.checked[binding.var])
            updates = updates.with_leaves(leaves)
            call = ScatterCall.from_call(binding.value).replace(updates=updates)
            binding = relax.VarBinding(binding.var, call.to_call())
        super().visit_var_binding_(binding)
