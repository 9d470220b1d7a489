"""One function for several tensors, whose elements are computed in one loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, te, tirx
from tvm.sym import Analyzer

from tvm_scatter.emit.computed_updates import BRANCH, function_name, loads_of, substitute
from tvm_scatter.emit.expressions import all_of
from tvm_scatter.errors import ScatterError
from tvm_scatter.ops.shapes import is_one

from .computed_elements import Elements, Part
from .fusion_patterns import INJECTIVE, OPAQUE, PATTERN
from .inlined import scalar_of

#: The attribute of a function that computes several tensors in one loop.
ONE_LOOP = "tvm_scatter.one_loop"
#: The most nodes of what one element of a tensor is computed by, and of all together.
_MOST_OF_ELEMENT = 384
_MOST_NODES = 3072


class NotOneLoop(ScatterError):
    """Why tensors are not computed in one loop. Its text is a clause."""


class OneLoop:
    """The loop over the elements of several tensors.

    Parameters
    ----------
    members : mapping
        Tensors that are computed, by variable.
    leaves : sequence of relax.Expr
        The tensors that are read.
    sizes : sequence of expression
        The sizes of the loop's axes.
    """

    def __init__(
        self, members: Mapping[Any, Elements], leaves: Sequence[Any], sizes: Sequence[Any]
    ) -> None:
        self._members, self._sizes = members, list(sizes)
        self._leaves = [(each, _buffer(each.ty, f"leaf{at}")) for at, each in enumerate(leaves)]
        self._axes = [tirx.Var(f"i{axis}", "int64") for axis in range(len(sizes))]
        self._analyzer = Analyzer()
        for axis, size in zip(self._axes, sizes, strict=True):
            self._analyzer.bind(axis, tvm.ir.Range(0, size))
        #: What an element is called, and at which place, by tensor.
        self._known: dict[Any, list[tuple[list[Any], Any]]] = {}
        self._lines: list[tirx.Stmt] = []
        self._nodes = 0
        #: Raised by what TVM calls, an error would come out of it as another one.
        self._refusal: NotOneLoop | None = None

    def function(self, results: Sequence[tuple[Any, Sequence[Part]]]) -> tirx.PrimFunc:
        """The function that computes tensors.

        Parameters
        ----------
        results : sequence of (type, sequence of Part)
            The type of each result, and what it consists of.

        Raises
        ------
        NotOneLoop
            If an element takes too many operations, or what is computed says what may be read.
        """
        buffers = [_buffer(type_, f"result{at}") for at, (type_, _) in enumerate(results)]
        written = []
        for buffer, (_, parts) in zip(buffers, results, strict=True):
            for part in parts:
                place = self._place(part.tensor)
                places = [at + start for at, start in zip(place, part.begins, strict=True)]
                value = self._read(part.tensor, place)
                written.append(tirx.BufferStore(buffer, value, places))
        loops = self._loops(tirx.SeqStmt([*self._lines, *written]))
        root = s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], "root", loops))
        function = tirx.PrimFunc([*(buffer for _, buffer in self._leaves), *buffers], root)
        marks = {"s_tir": True, "tirx.noalias": True, PATTERN: OPAQUE, ONE_LOOP: 1}
        # Sizes of its own, which its callers do not share.
        return tvm.ir.load_json(tvm.ir.save_json(function.with_attrs(marks)))

    def _place(self, tensor: Any) -> list[Any]:
        """Where a tensor's element is that the loop computes."""
        axes, zero = iter(self._axes), tirx.IntImm("int64", 0)
        return [zero if is_one(size) else next(axes) for size in tensor.ty.shape.values]

    def _shared(self, var: Any, place: Sequence[Any]) -> Any:
        """The element of a tensor at a place, which is computed once."""
        known = self._known.setdefault(var, [])
        for other, found in known:
            if tvm_ffi.structural_equal(other, list(place)):
                return found
        value = self._element(var, place)
        self._check_branches(value)
        self._nodes += len(all_of(value, tvm.ir.Expr))
        if self._nodes > _MOST_NODES:
            raise NotOneLoop("it would have too many operations")
        found = tirx.Var(f"shared{len(self._lines)}", str(value.ty.dtype))
        self._lines.append(tirx.Bind(found, value))
        known.append((list(place), found))
        return found

    def _element(self, var: Any, place: Sequence[Any]) -> Any:
        """The element of a tensor that is computed, at a place."""
        member = self._members[var]
        value = substitute(member.value, dict(zip(member.axes, place, strict=True)))

        def load(each: Any) -> Any:
            operand = member.operands.get(each.source)
            if operand is None or self._refusal is not None:
                return each
            try:
                return self._read(operand, each.indices)
            except NotOneLoop as refusal:
                self._refusal = refusal
                return each

        found = tvm_ffi.structural_map(value, (tvm.ir.TensorLoad, load))
        if self._refusal is not None:
            raise self._refusal
        if len(all_of(found, tvm.ir.Expr)) > _MOST_OF_ELEMENT:
            raise NotOneLoop("an element takes too many operations")
        return found

    def _read(self, tensor: Any, place: Sequence[Any]) -> Any:
        """The element of a tensor at a place."""
        place = [self._analyzer.simplify(at) for at in place]
        if tensor not in self._members:
            buffer = next(buffer for each, buffer in self._leaves if each.same_as(tensor))
            return tirx.BufferLoad(buffer, place)
        # Where it is read in a branch only, it need not be there in any case.
        there = all(map(self._is_inside, place, self._members[tensor].sizes))
        return self._shared(tensor, place) if there else self._element(tensor, place)

    def _check_branches(self, value: Any) -> None:
        """Raise if what is computed here says whether something may be read at all."""
        computed = {line.var for line in self._lines}
        for branch in all_of(value, tvm.ir.Call):
            if function_name(branch) == BRANCH:
                condition, *sides = branch.args
                waits = not computed.isdisjoint(all_of(condition, tvm.ir.Var))
                loads = [load for side in sides for load in loads_of(side)]
                if waits and not all(map(self._is_there, loads)):
                    raise NotOneLoop("what is read depends on what is computed")

    def _is_there(self, load: Any) -> bool:
        return all(map(self._is_inside, load.indices, load.source.ty.shape))

    def _is_inside(self, at: Any, size: Any) -> bool:
        return bool(self._analyzer.can_prove(tirx.all(at >= 0, at < size)))

    def _loops(self, body: tirx.Stmt) -> tirx.Stmt:
        """The loops over all places, and one block in them."""
        iterations = [
            tirx.IterVar(tvm.ir.Range(0, size), axis, tirx.IterVar.DataPar)
            for axis, size in zip(self._axes, self._sizes, strict=True)
        ]
        reads = [_region(each.source, each.indices) for each in loads_of(body)]
        stores = all_of(body, tirx.BufferStore)
        writes = [_region(each.buffer, each.indices) for each in stores]
        block = s_tir.SBlock(iterations, reads, writes, "elements", body)
        loops = [tirx.Var(f"loop{at}", "int64") for at in range(len(self._axes))]
        nest: tirx.Stmt = s_tir.SBlockRealize(loops, True, block)
        for loop, size in zip(reversed(loops), reversed(self._sizes), strict=True):
            nest = tirx.For(loop, tirx.IntImm("int64", 0), size, tirx.ForKind.SERIAL, nest)
        return nest


def leaves_of(members: Mapping[Any, Elements], results: Sequence[Sequence[Part]]) -> list[Any]:
    """The tensors that a loop reads, given what it computes and what its results consist of."""
    read = [each for member in members.values() for each in member.read]
    read += [part.tensor for parts in results for part in parts]
    found: list[Any] = []
    for each in read:
        is_known = each in members or scalar_of(each) is not None
        if not is_known and not any(map(each.same_as, found)):
            found.append(each)
    return found


def slice_of(type_: Any, part: Part) -> tirx.PrimFunc:
    """The function that reads a part of a tensor of some type."""
    whole = te.placeholder(list(type_.shape.values), str(type_.dtype), name="whole")

    def element(*place: Any) -> Any:
        return whole(*(at + start for at, start in zip(place, part.begins, strict=True)))

    result = te.compute(list(part.tensor.ty.shape.values), element, name="part")
    function = te.create_prim_func([whole, result]).without_attr("global_symbol")
    return tvm.ir.load_json(tvm.ir.save_json(function.with_attr(PATTERN, INJECTIVE)))


def _buffer(type_: Any, name: str) -> Any:
    return tirx.decl_buffer(list(type_.shape.values), str(type_.dtype), name)


def _region(buffer: Any, place: Sequence[Any]) -> Any:
    return tirx.BufferRegion(buffer, [tvm.ir.Range.from_min_extent(at, 1) for at in place])
