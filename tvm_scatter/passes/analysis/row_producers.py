"""Finds the operators that a reduction of rows can compute itself, where it reads the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm_scatter.lowering.inlined import CALLS, MOVES, PRODUCERS, RESHAPES, operands_of
from tvm_scatter.lowering.reads import is_read
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.shapes import is_one, static_shape

from .bindings import Binding, Bindings
from .taken_producers import grows, is_checked, refusal_of


@dataclass(frozen=True)
class RowProducers:
    """What a reduction computes itself.

    Attributes
    ----------
    taken : tuple of Binding
        In the order in which they run. Some of them are reads by index.
    checked : tuple of Binding
        Those reads whose bad indices must be reported. A check needs the indices in memory.
    refused : str
        Why there is no read among them; empty if there is one.
    reads_by_index : bool
        Whether anything that the rows are computed from is read by index.
    """

    taken: tuple[Binding, ...]
    checked: tuple[Binding, ...]
    refused: str
    reads_by_index: bool


def row_producers(
    bindings: Bindings, readers: Mapping[Any, Sequence[Binding]], reduction: Binding
) -> RowProducers:
    """Find the producers of the rows that are reduced.

    They end at reads by index. What those read is in memory already, or is computed once for each
    row of it instead of once for each time that the row is read. A read is computed again where
    other readers need its result, too: that moves as many bytes as to read the result. Other
    producers are only where their operands are smaller than their results. What all columns of a
    product share is computed once, if that takes a call.
    """
    wanted = set(operands_of(reduction.value))
    above = set(wanted)
    taken: list[Binding] = []
    checked: list[Binding] = []
    inside = {reduction.var}
    in_memory: set[Any] = set()
    refused = "no row is read by index"
    reads_by_index = False
    bound = {each.var: each for each in bindings.all[: reduction.at]}
    behind_calls = _behind_calls(bound)
    shared: set[Any] = set()
    for binding in reversed(bound.values()):
        reads = is_read(binding.value)
        if binding.var in above and (reads or operator_of(binding.value) in PRODUCERS):
            above |= set(operands_of(binding.value))
            reads_by_index |= reads
        if binding.var not in wanted or binding.var in in_memory:
            continue
        refusal = refusal_of(binding, bindings, [reduction])
        again = reads or _is_reshaped_read(binding, bound)
        if refusal is None and not again and _is_needed(binding, bindings, readers, inside):
            refusal = f"{binding.var.name} has other readers"
        moves = operator_of(binding.value) in MOVES
        if refusal is None and not moves and binding.var in shared & behind_calls:
            refusal = f"{binding.var.name} is computed once for all rows"
        if refusal is not None:
            refused = refusal
            continue
        taken.append(binding)
        inside.add(binding.var)
        operands = set(operands_of(binding.value))
        shared |= operands if binding.var in shared else _spread(binding)
        if not reads:
            wanted |= operands
            continue
        in_memory |= operands
        if is_checked(binding.value):
            checked.append(binding)
    has_reads = any(is_read(each.value) for each in taken)
    refused = "" if has_reads else refused
    return RowProducers(tuple(reversed(taken)), tuple(checked), refused, reads_by_index)


def _spread(binding: Binding) -> set[Any]:
    """The operands of which several elements of a result are computed."""
    shape = static_shape(binding.var) or []
    if operator_of(binding.value) in MOVES or is_read(binding.value):
        return set()
    found: set[Any] = set()
    for each in operands_of(binding.value):
        pairs = zip(reversed(static_shape(each) or []), reversed(shape), strict=False)
        if any(is_one(size) and not is_one(of) for size, of in pairs):
            found.add(each)
    return found


def _behind_calls(bound: Mapping[Any, Binding]) -> set[Any]:
    """What is computed by calls such as ``exp``, or of what is."""
    found: set[Any] = set()
    for binding in bound.values():
        operator = operator_of(binding.value)
        if operator in CALLS or (operator in PRODUCERS and set(operands_of(binding.value)) & found):
            found.add(binding.var)
    return found


def _is_reshaped_read(binding: Binding, bound: Mapping[Any, Binding]) -> bool:
    """Whether a result has the elements of a read by index in another shape."""
    while operator_of(binding.value) in RESHAPES:
        source = bound.get(binding.value.args[0])
        if source is None:
            return False
        binding = source
        if is_read(binding.value):
            return True
    return False


def _is_needed(
    binding: Binding,
    bindings: Bindings,
    readers: Mapping[Any, Sequence[Binding]],
    inside: set[Any],
) -> bool:
    """Whether a result must be in memory, and costs more to compute again than to read there."""
    others = any(reader.var not in inside for reader in readers.get(binding.var, ()))
    return (others or binding.var in bindings.returned) and not grows(binding.value)
