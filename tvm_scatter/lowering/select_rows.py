"""``select_rows``: each row from the tensor that a table names, in one launch.

What is left of a chain of scatters once it is known which update each row gets.
"""

from __future__ import annotations

from math import gcd, prod
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.s_tir import Schedule

from .joined_ranges import JoinedRange, reader

_THREADS = 256
#: Bytes that a thread moves at once.
_ACCESS_BYTES = 16
_INT32_ELEMENTS = 1 << 31


def select_kernel(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """One function that reads each row from the source that its winner lies in."""
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
    # Rows are found by division: 64 bits would cost more than the copy.
    narrow = max(prod(map(int, tensor.shape)) for tensor in (*tensors, output)) < _INT32_ELEMENTS
    func = te.create_prim_func([*tensors, output], "int32" if narrow else "int64")
    scheduled = _scheduled(func.with_attr("tirx.is_scheduled", True), shape[2], str(result.dtype))
    # The module that it is added to names it: two of one name cannot be compiled.
    return scheduled.without_attr("global_symbol")


def _winner_of(source: te.Tensor, winners: te.Tensor, begin: int) -> Any:
    return lambda at: source(at[0], winners(at[1]) - begin, at[2])


def _scheduled(func: tirx.PrimFunc, row: int, dtype: str) -> tirx.PrimFunc:
    """A thread for each access, which stays within a row: one look at the table serves it."""
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
    # TVM's generator makes no vector of bytes or bools that all equal a number in memory.
    return 1 if bits <= 8 else gcd(row, _ACCESS_BYTES * 8 // bits)
