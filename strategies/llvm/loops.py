"""Loops and index arithmetic that the CPU implementations share."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emission import Operands
from tvm_scatter.reductions import identity


def int64(value: Any) -> Any:
    """A number or an integer expression as int64."""
    return tirx.IntImm("int64", value) if isinstance(value, int) else tirx.Cast("int64", value)


def copy_data(operands: Operands) -> None:
    """``out = data``, in parallel; nothing where the problem is in place."""
    if operands.data is None:
        return
    size = operands.sizes.data_size
    if isinstance(size, int) and size <= 16384:
        with T.serial(size) as i:
            T.buffer_store(operands.out, operands.data[i], [i])
        return
    with T.parallel(size) as i:
        T.buffer_store(operands.out, operands.data[i], [i])


def index_position(operands: Operands, b: Any, k: Any, s: Any) -> Any:
    """Where the index of update (b, k, s) stands, in entries of one component."""
    problem, sizes = operands.problem, operands.sizes
    position = b * sizes.count + k if problem.index_batch else k
    return position * sizes.slice + s if problem.index_slice else position


def destination(operands: Operands, b: Any, k: Any, s: Any) -> tuple[Any, Any]:
    """The destination of update (b, k, s) along the scatter axis, and whether it is in bounds."""
    problem = operands.problem
    position = index_position(operands, b, k, s)
    place: Any = None
    valid: Any = tirx.const(True, "bool")
    components = len(problem.extents)
    for component, extent in enumerate(operands.sizes.extents):
        if problem.interleaved:
            entry = operands.indices[0][position * components + component]
        else:
            entry = operands.indices[component][position]
        index = T.bind(int64(entry))
        if problem.wrap_negative:
            index = T.bind(tirx.Select(index < 0, index + extent, index))
        if problem.bounds != "trust":
            valid = tirx.all(valid, index >= 0, index < extent)
        place = index if place is None else place * extent + index
    return place, valid


def out_position(operands: Operands, b: Any, place: Any, s: Any) -> Any:
    """The element of ``out`` at (b, place, s)."""
    sizes = operands.sizes
    return (b * sizes.extent + place) * sizes.slice + s


def update_value(operands: Operands, b: Any, k: Any, s: Any) -> Any:
    """The update (b, k, s), broadcast as the problem says."""
    problem, sizes = operands.problem, operands.sizes
    position: Any = int64(0)
    if problem.update_batch:
        position = position + b
    if problem.update_count:
        position = position * sizes.count + k
    if problem.update_slice:
        position = position * sizes.slice + s
    return operands.updates[position]


def combine(reduction: str, dtype: str, old: Any, update: Any) -> Any:
    """``old`` combined with ``update``; minimum and maximum keep a NaN, integers wrap around."""
    if reduction == "update":
        return update
    if dtype == "bool":
        return tirx.any(old, update) if reduction in ("add", "mean", "max") else tirx.all(old, update)
    if reduction in ("add", "mean"):
        return old + update
    if reduction == "mul":
        return old * update
    if dtype not in ("float16", "bfloat16", "float32", "float64"):
        return tirx.min(old, update) if reduction == "min" else tirx.max(old, update)
    better = old < update if reduction == "min" else old > update
    return tirx.Select(tirx.any(better, old != old), old, update)


def start_value(operands: Operands) -> Any:
    """The identity of the reduction, in the type of the data."""
    dtype = operands.problem.data_dtype
    return tirx.const(identity(operands.problem.reduction, dtype), dtype)
