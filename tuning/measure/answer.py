"""Functions compiled beside the candidates: they widen operands and compare answers on the device.

So neither the operands nor the answers of a measurement travel, whether the device is in this
machine or behind an RPC connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.target import Target
from tvm.tirx.script import builder as T

from tvm_scatter.emit.parameters import PRIM_FUNC_ATTRS, opaque_block
from tvm_scatter.problem.reductions import FLOATS
from tvm_scatter.selection.backend import backend_of

#: Tasks among which an answer is divided; each counts its own differences.
TASKS = 1 << 14
_THREADS = 256


def widen(dtype: str, rows: int, columns: int, width: int, target: Target) -> tirx.PrimFunc:
    """A function (narrow, wide): column ``s`` of a row of ``wide`` is column ``s % columns``."""

    def body(narrow: Any, wide: Any) -> None:
        def element(i: Any) -> None:
            T.buffer_store(wide, narrow[i // width * columns + i % width % columns], [i])

        _for_each(rows * width, target, element)

    return _function([(rows * columns, dtype), (rows * width, dtype)], body)


def differences(dtype: str, rows: int, columns: int, width: int, target: Target) -> tirx.PrimFunc:
    """A function (out, expected, allowed, counts): how many elements are off, for each task.

    ``out`` is wide; ``expected`` and ``allowed`` are narrow as :func:`widen` takes them; ``counts``
    is int32 of shape (TASKS,).
    """
    size = rows * width

    def body(out: Any, expected: Any, allowed: Any, counts: Any) -> None:
        def task(t: Any) -> None:
            T.buffer_store(counts, tirx.const(0, "int32"), [t])
            share = -(-size // TASKS)
            with T.serial(tirx.IntImm("int64", share)) as j:
                # Neighbouring tasks look at neighbouring elements.
                i = j * TASKS + t
                with T.If(i < size):
                    with T.Then():
                        at = i // width * columns + i % width % columns
                        with T.If(_is_off(dtype, out[i], expected[at], allowed[at])):
                            with T.Then():
                                more = counts[t] + tirx.const(1, "int32")
                                T.buffer_store(counts, more, [t])

        _for_each(TASKS, target, task)

    narrow = rows * columns
    return _function([(size, dtype), (narrow, dtype), (narrow, "float32"), (TASKS, "int32")], body)


def _is_off(dtype: str, value: Any, expected: Any, allowed: Any) -> Any:
    if dtype not in FLOATS:
        return value != expected
    wide = "float64" if dtype == "float64" else "float32"
    value, expected = tirx.Cast(wide, value), tirx.Cast(wide, expected)
    gap = tirx.abs(value - expected)
    # Comparisons with a NaN are false, and equal infinities have no gap.
    is_far = tirx.all(value != expected, gap > tirx.Cast(wide, allowed))
    return tirx.any(tirx.isnan(value), is_far)


def _for_each(count: int, target: Target, body: Callable[[Any], None]) -> None:
    if not backend_of(target).is_gpu:
        with T.parallel(tirx.IntImm("int64", count)) as i:
            body(i)
        return
    with T.launch_thread("blockIdx.x", -(-count // _THREADS)) as block:
        with T.launch_thread("threadIdx.x", _THREADS) as thread:
            i = tirx.Cast("int64", block) * _THREADS + tirx.Cast("int64", thread)
            with T.If(i < count):
                with T.Then():
                    body(i)


def _function(operands: list[tuple[int, str]], body: Callable[..., None]) -> tirx.PrimFunc:
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name("main")
            T.func_attr(PRIM_FUNC_ATTRS)
            handles = [T.arg(f"operand{i}", T.handle()) for i in range(len(operands))]
            buffers = [
                T.match_buffer(handle, (size,), dtype)
                for handle, (size, dtype) in zip(handles, operands, strict=True)
            ]
            with opaque_block():
                body(*buffers)
    return builder.get()
