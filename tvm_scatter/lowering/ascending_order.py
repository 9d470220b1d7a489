"""The order of updates whose index ascends already: nothing is sorted."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import relax, te, tirx
from tvm.script import tirx as T

from tvm_scatter.emit.ordering import DTYPE
from tvm_scatter.ops.shapes import is_empty


def ascending_order(bb: relax.BlockBuilder, index: Any, types: Sequence[Any]) -> list[relax.Expr]:
    """Emit the order: the permutation, which changes nothing, if it is asked for, and the offsets.

    Parameters
    ----------
    index : relax.Expr
        Integers that ascend, none of which is negative. Those that are not less than the extent
        stand behind the last offset.
    types : sequence of relax.TensorType
        That of the offsets, and in front of it that of the permutation, if it is asked for.
    """
    if is_empty(index):
        return [bb.emit(relax.op.zeros(each.shape, DTYPE)) for each in types]
    *permutation, offsets = types
    count = prod(index.ty.shape.values)
    flat = index if index.ty.ndim == 1 else bb.emit(relax.op.reshape(index, [count]))

    def numbers(count: Any) -> te.Tensor:
        return te.compute((count,), lambda i: i.astype(DTYPE), name="permutation")

    made = [bb.emit_te(numbers, count, primfunc_name_hint="permutation") for _ in permutation]
    search = bb.add_func(_search(str(index.ty.dtype)), "offsets")
    return [*made, bb.emit(relax.op.call_tir(search, [flat], offsets))]


def _search(dtype: str) -> tirx.PrimFunc:
    """For each destination a bisection: how many indices are less."""

    @T.prim_func(private=True, s_tir=True)  # type: ignore[untyped-decorator]
    def search(index: T.handle, offsets: T.handle) -> None:
        T.func_attr({"op_pattern": 8, "tirx.noalias": True})
        size, count = T.int64(), T.int64()
        sorted_index = T.match_buffer(index, (size,), dtype)
        found = T.match_buffer(offsets, (count,), "int32")
        for i in T.grid(count):
            with T.sblock("search"):
                at = T.axis.remap("S", [i])
                T.reads(sorted_index[0:size])
                T.writes(found[at])
                low = T.sblock_alloc_buffer((1,), "int64", scope="local")
                high = T.sblock_alloc_buffer((1,), "int64", scope="local")
                low[0] = T.int64(0)
                high[0] = size
                while low[0] < high[0]:
                    if T.cast(sorted_index[(low[0] + high[0]) // 2], "int64") < at:
                        low[0] = (low[0] + high[0]) // 2 + 1
                    else:
                        high[0] = (low[0] + high[0]) // 2
                found[at] = T.cast(low[0], "int32")

    return search
