"""Finds the operators that a reduction of rows can compute itself, where it reads the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm_scatter.lowering.inlined import PRODUCERS, RESHAPES, operands_of
from tvm_scatter.lowering.reads import is_read
from tvm_scatter.ops.called import operator_of

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
    producers are only where their operands are smaller than their results.
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
        if refusal is not None:
            refused = refusal
            continue
        taken.append(binding)
        inside.add(binding.var)
        operands = set(operands_of(binding.value))
        if not reads:
            wanted |= operands
            continue
        in_memory |= operands
        if is_checked(binding.value):
            checked.append(binding)
    has_reads = any(is_read(each.value) for each in taken)
    refused = "" if has_reads else refused
    return RowProducers(tuple(reversed(taken)), tuple(checked), refused, reads_by_index)


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
