"""Calls that reduce rows, compute rows from what they found, and compute what they reduce."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx
from tvm.target import Target

from tvm_scatter.emit.computed_updates import loads_of
from tvm_scatter.emit.expressions import all_of, are_neighbours, moves
from tvm_scatter.lowering.computed_rows import BLOCK_ROW, SHORTEST_ROW
from tvm_scatter.lowering.fused_reads import IS_READ
from tvm_scatter.lowering.fusion_patterns import (
    BROADCAST,
    INJECTIVE,
    REDUCTION,
    ROOT,
    fusion_pattern,
)
from tvm_scatter.lowering.one_reduction import spreads_reductions
from tvm_scatter.lowering.row_reductions import reducing_blocks
from tvm_scatter.passes.functions import is_ours_to_change
from tvm_scatter.passes.long_expressions import stored_variables

from .bindings import Binding, Bindings
from .call_groups import arguments_of, called_function, says_sizes


@dataclass(frozen=True)
class RowGroup:
    """Calls that one function of rows can take the place of.

    Attributes
    ----------
    bindings : tuple of Binding
        Calls of functions that TVM has legalized. The last one's result is the rows.
    arguments : tuple of relax.Expr
        What they read that none of them computes.
    reduces : str
        The name of the function that reduces first.
    """

    bindings: tuple[Binding, ...]
    arguments: tuple[Any, ...]
    reduces: str

    def __str__(self) -> str:
        return ", ".join(each.value.args[0].name_hint for each in self.bindings)


def row_groups(mod: tvm.IRModule) -> dict[Any, dict[Any, RowGroup]]:
    """The groups of each function that has some, by the variable of the rows.

    Parameters
    ----------
    mod : tvm.IRModule
        With functions that are legalized and have TVM's patterns, but are not fused.
    """
    target = Target.current(allow_none=True)
    if target is None or not spreads_reductions(target):
        return {}
    return {
        name: found
        for name, function in mod.functions.items()
        if is_ours_to_change(function) and (found := _Groups(Bindings(function), mod).found())
    }


class _Groups:
    """Looks for groups in the bindings of a function."""

    def __init__(self, bindings: Bindings, mod: tvm.IRModule) -> None:
        self._bindings = bindings
        self._readers: Mapping[Any, Sequence[Binding]] = {}
        self._functions = {
            each.var: function
            for each in bindings
            if (function := called_function(each, mod)) is not None
        }
        # Many calls are of the same function.
        row_of, computes_neighbours = cache(_row_of), cache(_computes_neighbours)
        self._rows = {var: row_of(function) for var, function in self._functions.items()}
        self._computes_neighbours = computes_neighbours
        self._apart: set[Any] = set()
        self._mod = mod

    def found(self) -> dict[Any, RowGroup]:
        """The groups, none of which has a binding of another one."""
        if not any(self._rows.values()):
            return {}
        self._readers = self._bindings.readers()
        self._apart = self._behind_others() | stored_variables(self._bindings, self._mod.functions)
        groups: dict[Any, RowGroup] = {}
        taken: set[Any] = set()
        ends = self._ends()
        for binding in reversed(self._bindings.all):
            if binding.var in taken or binding.var not in ends:
                continue
            group = self._group(binding)
            if group is not None:
                taken |= {each.var for each in group.bindings}
                groups[binding.var] = group
        return groups

    def _behind_others(self) -> set[Any]:
        """What TVM computes where something else ends: a product, a convolution."""
        found: set[Any] = set()
        others = {
            var
            for var, function in self._functions.items()
            if self._rows[var] is None and fusion_pattern(function) == ROOT
        }
        for binding in self._bindings:
            function = self._functions.get(binding.var)
            if function is None or IS_READ in function.attrs:
                continue
            if fusion_pattern(function) <= BROADCAST and binding.reads & (others | found):
                found.add(binding.var)
        return found

    def _ends(self) -> set[Any]:
        """What reduces rows, or is computed from what does."""
        found: set[Any] = set()
        for binding in self._bindings:
            is_end = self._rows.get(binding.var) is not None or bool(binding.reads & found)
            if is_end and self._may_take(binding):
                found.add(binding.var)
        return found

    def _may_take(self, binding: Binding) -> bool:
        function = self._functions.get(binding.var)
        if function is None or binding.var in self._apart:
            return False
        return self._rows[binding.var] is not None or self._computes_neighbours(function)

    def _group(self, last: Binding) -> RowGroup | None:
        """The calls that end in one, if they are more than TVM puts together itself."""
        row = self._rows[last.var]
        inside, wanted, group = {last.var}, self._wanted(last), [last]
        for binding in reversed(self._bindings.all[: last.at]):
            if not wanted:
                break
            if binding.var not in wanted:
                continue
            wanted.discard(binding.var)
            own = self._rows[binding.var]
            is_alone = all(reader.var in inside for reader in self._readers[binding.var])
            is_inner = isinstance(binding.var, relax.DataflowVar) and is_alone
            if not is_inner or binding.fused != last.fused or not self._may_take(binding):
                continue
            if own is not None:
                if row not in (None, own) or not _is_of(binding, last, own):
                    continue
                row = own
            inside.add(binding.var)
            group.append(binding)
            wanted |= self._wanted(binding)
        reductions = [each for each in group if self._rows[each.var] is not None]
        if not reductions or self._fuses_itself(group, reductions):
            return None
        group.reverse()
        arguments = arguments_of(group)
        if not says_sizes(group, arguments):
            return None
        name = reductions[-1].value.args[0].name_hint
        return RowGroup(tuple(group), tuple(arguments), name)

    def _wanted(self, binding: Binding) -> set[Any]:
        """What computes the operands of a call."""
        function, operands = self._functions[binding.var], binding.value.args[1].fields
        if IS_READ in function.attrs and fusion_pattern(function) > INJECTIVE:
            # Its data is computed once, and not once for each time that it is read.
            operands = operands[1:]
        return {each for each in operands if each in self._functions}

    def _fuses_itself(self, group: Sequence[Binding], reductions: Sequence[Binding]) -> bool:
        """Whether one function reduces, and TVM fuses with it what there is."""
        reduction = reductions[0]
        if len(reductions) > 1:
            return False
        is_same = _same_sizes(_sizes(reduction), _sizes(group[0]))
        if fusion_pattern(self._functions[reduction.var]) == REDUCTION:
            return is_same
        return is_same and reduction is group[-1]


def _row_of(function: tirx.PrimFunc) -> tuple[int, ...] | None:
    """The sizes of the last axes that a function reduces, if it reduces rows of some length."""
    blocks = reducing_blocks(function)
    if not blocks or fusion_pattern(function) not in (REDUCTION, ROOT):
        return None
    rows = {_reduced_by(block) for block in blocks}
    if len(rows) != 1:
        return None
    (row,) = rows
    return row if row is not None and SHORTEST_ROW <= prod(row) <= BLOCK_ROW else None


def _reduced_by(block: s_tir.SBlock) -> tuple[int, ...] | None:
    """The sizes of the last axes that a block reduces; ``None`` for others and for products."""
    axes = list(block.iter_vars)
    reduced = [axis for axis in axes if axis.iter_type == tirx.IterVar.CommReduce]
    outer = axes[: len(axes) - len(reduced)]
    if any(axis.iter_type != tirx.IterVar.DataPar for axis in outer):
        return None
    sizes = [axis.dom.extent for axis in reduced]
    wide = [axis.var for axis in axes if not _is_single(axis.dom.extent)]
    loads = all_of(block.body, tvm.ir.TensorLoad)
    whole = [load for load in loads if all(moves(load, axis) for axis in wide)]
    if not any(are_neighbours(load, reduced[-1].var) for load in whole):
        return None
    if not all(isinstance(size, tirx.IntImm) for size in sizes):
        return None
    return tuple(int(size) for size in sizes)


def _computes_neighbours(function: tirx.PrimFunc) -> bool:
    """Whether neighbours in a row are computed one by one, from neighbours or from the same."""
    if fusion_pattern(function) > INJECTIVE and IS_READ not in function.attrs:
        return False
    blocks = [each for each in all_of(function.body, s_tir.SBlock) if each.name_hint != "root"]
    stores = [block.body for block in blocks]
    if not all(isinstance(each, tirx.BufferStore) for each in stores) or reducing_blocks(function):
        return False
    return all(
        are_neighbours(load, axis)
        for store in stores
        for axis in store.indices[-1:]
        for load in loads_of(store.value)
        if isinstance(axis, tirx.Var)
    )


def _is_of(binding: Binding, last: Binding, row: Sequence[int]) -> bool:
    """Whether a call that reduces rows computes the rows that are written, or a number for each.

    What is written may be a number for each row itself.
    """
    every, own = _sizes(last), _sizes(binding)
    inner = [size for size in row if size != 1]
    outer = every[: len(every) - len(inner)]
    if _same_sizes(every[len(outer) :], inner) and _same_sizes(own, outer):
        return True
    return _same_sizes(own, every) or _same_sizes(own, [*every, *inner])


def _sizes(binding: Binding) -> list[Any]:
    """The sizes of a result other than one."""
    sizes = binding.value.ty.shape
    if not isinstance(sizes, relax.ShapeExpr):
        return []
    plain = [int(size) if isinstance(size, tirx.IntImm) else size for size in sizes]
    return [size for size in plain if not isinstance(size, int) or size != 1]


def _same_sizes(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(map(tvm_ffi.structural_equal, one, other))


def _is_single(size: Any) -> bool:
    return isinstance(size, tirx.IntImm) and int(size) == 1
