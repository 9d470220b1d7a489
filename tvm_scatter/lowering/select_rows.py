"""``select_rows``: copies each row of the result from the data or from one of several sources.

For each row of the result a table, the winners, holds a row of the concatenated sources, or -1 for
the data. A chain of scatters whose winners are known becomes one such copy, in one launch.
"""

from __future__ import annotations

from math import gcd, prod
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.s_tir import Schedule

from tvm_scatter.emit.parameters import SCHEDULED

from .joined_ranges import JoinedRange, reader

_THREADS = 256
#: Bytes that a thread copies by one access.
_ACCESS_BYTES = 16
_INT32_ELEMENTS = 1 << 31


def select_kernel(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Emit one function that copies each row from the source that holds its winner."""
    data, winners, sources = call.args
    operands = [data, winners, *sources.fields]
    func = bb.add_func(_select(call.ty, operands), "select_rows")
    return relax.op.call_tir(func, operands, call.ty)


def _select(result: relax.TensorType, operands: list[Any]) -> tirx.PrimFunc:
    shape = [int(dim) for dim in result.shape]
    tensors = [
        te.placeholder([int(dim) for dim in operand.ty.shape], operand.ty.dtype, f"operand{i}")
        for i, operand in enumerate(operands)
    ]
    data, winners, *sources = tensors
    ranges: list[JoinedRange] = [(0, lambda at: data(*at) if data.shape else data())]
    end = 0
    for source in sources:
        rows = int(source.shape[1])
        ranges.append((end + rows, _winner_of(source, winners, end)))
        end += rows
    read = reader(ranges, lambda at: winners(at[1]))
    output = te.compute(shape, read, name="select_rows")
    # The kernel divides to find a row. With 64-bit integers this would cost more than the copy.
    narrow = max(prod(map(int, tensor.shape)) for tensor in (*tensors, output)) < _INT32_ELEMENTS
    func = te.create_prim_func([*tensors, output], "int32" if narrow else "int64")
    scheduled = _scheduled(func.with_attr(SCHEDULED, True), shape[2], str(result.dtype))
    # The module gives the function its name. TVM cannot compile two functions of one name.
    return scheduled.without_attr("global_symbol")


def _winner_of(source: te.Tensor, winners: te.Tensor, begin: int) -> Any:
    return lambda at: source(at[0], winners(at[1]) - begin, at[2])


def _scheduled(func: tirx.PrimFunc, row: int, dtype: str) -> tirx.PrimFunc:
    """Schedule one thread for each access.

    An access stays within a row, so the thread reads the table once.
    """
    schedule = Schedule(func)
    batch, position, slice_ = schedule.get_loops(schedule.get_sblock("select_rows"))
    access, vector = schedule.split(slice_, [None, _lanes(row, dtype)])
    block, thread = schedule.split(schedule.fuse(batch, position, access), [None, _THREADS])
    schedule.bind(block, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    schedule.vectorize(vector)
    return schedule.mod["main"]


def _lanes(row: int, dtype: str) -> int:
    bits = tvm.DataType(dtype).bits
    # TVM's code generator cannot fill a vector of bytes or bools with one value from memory.
    return 1 if bits <= 8 else gcd(row, _ACCESS_BYTES * 8 // bits)
