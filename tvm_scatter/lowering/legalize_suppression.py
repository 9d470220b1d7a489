"""The ``FLegalize`` of non-maximum suppression.

The boxes of a class are looked at one after the other; those that a kept one overlaps are marked
together. On a GPU a block of threads does so for each class of an image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from tvm import relax, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_scatter.emit.parameters import MADE_FOR, PRIM_FUNC_ATTRS, Parameters
from tvm_scatter.ops.shapes import SymbolTable, is_empty, no_elements
from tvm_scatter.ops.suppression import KEPT_BOXES
from tvm_scatter.selection.backend import backend_of

from .legalizations import put_in_front
from .target import target_of

_THREADS = 256
_OPERATOR = "non-maximum suppression"


class _Line(NamedTuple):
    """One class of an image, and who looks at it.

    Attributes
    ----------
    first, box : expression
        Where its order begins, and where the boxes of its image do.
    count : expression
        The number of boxes.
    thread, threads : expression, int
        The thread that runs this, and how many there are.
    wait : callable
        Waits for the other threads.
    """

    first: Any
    box: Any
    count: Any
    thread: Any
    threads: int
    wait: Callable[[], None]


def install_legalizations() -> None:
    """Install the legalization of the operator. Calling it again changes nothing."""
    put_in_front([KEPT_BOXES], _legalize, ours=True)


def _legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    if is_empty(call.args[2]):
        return no_elements(call.ty)
    func = bb.add_func(_function(call), "kept_boxes")
    return relax.op.call_tir(func, list(call.args), call.ty)


def _function(call: relax.Call) -> tirx.PrimFunc:
    target, symbols = target_of(call.args[0]), SymbolTable()
    shapes = [symbols.shape(_OPERATOR, each) for each in call.args]
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_attr({**PRIM_FUNC_ATTRS, MADE_FOR: str(target.kind.name)})
        parameters = Parameters()
        for name, tensor, shape in zip(
            ("boxes", "order", "candidates"), call.args, shapes, strict=True
        ):
            parameters.add(name, shape, str(tensor.ty.dtype))
        parameters.add("kept", shapes[2], "bool")
        with parameters.in_body() as buffers:
            images, classes, count = (
                _int64(parameters.size(shapes[2][at : at + 1])) for at in range(3)
            )
            limit = int(call.attrs["most"])
            suppress = partial(_suppress, buffers, float(call.attrs["overlap"]), limit)
            lines = images * classes

            def line(number: Any, thread: Any, threads: int, wait: Callable[[], None]) -> None:
                image = tirx.floordiv(number, classes)
                suppress(_Line(number * count, image * count, count, thread, threads, wait))

            if backend_of(target).is_gpu:
                with T.launch_thread("blockIdx.x", lines) as block:
                    with T.launch_thread("threadIdx.x", _THREADS) as thread:
                        number, at = (tirx.Cast("int64", each) for each in (block, thread))
                        line(number, at, _THREADS, _wait_for_block)
            else:
                with T.parallel(lines) as number:
                    line(number, _int64(0), 1, lambda: None)
    return builder.get()


def _suppress(buffers: Any, overlap: float, most: int, line: _Line) -> None:
    boxes, order, candidates, kept = buffers
    with _each(line, _int64(0)) as j:
        T.buffer_store(kept, candidates[line.first + j], [line.first + j])
    line.wait()
    state = T.alloc_buffer((2,), "int64", scope="local")
    for at in range(2):
        T.buffer_store(state, _int64(0), [at])
    more = tirx.all(state[0] < line.count, state[1] < (line.count if most < 0 else most))
    with T.While(more):
        i = T.bind(state[0])
        T.buffer_store(state, i + 1, [0])
        # All threads read the same, because nothing writes here behind the last wait.
        with T.If(kept[line.first + i]), T.Then():
            T.buffer_store(state, state[1] + 1, [1])
            best = _corners(boxes, line.box + order[line.first + i])
            with _each(line, i + 1) as j, T.If(kept[line.first + j]), T.Then():
                other = _corners(boxes, line.box + order[line.first + j])
                with T.If(_overlaps(best, other, overlap)), T.Then():
                    T.buffer_store(kept, tirx.IntImm("bool", 0), [line.first + j])
            line.wait()
    with _each(line, T.bind(state[0])) as j:
        T.buffer_store(kept, tirx.IntImm("bool", 0), [line.first + j])


@contextmanager
def _each(line: _Line, begin: Any) -> Iterator[Any]:
    """A loop over the places from ``begin`` on, which the threads share."""
    steps = tirx.floordiv(tirx.max(line.count - begin, 0) + (line.threads - 1), line.threads)
    with T.serial(steps) as step:
        j = T.bind(begin + step * line.threads + line.thread)
        with T.If(j < line.count), T.Then():
            yield j


def _corners(boxes: Any, box: Any) -> list[Any]:
    return [T.bind(boxes[box * 4 + at]) for at in range(4)]


def _overlaps(left: list[Any], right: list[Any], limit: float) -> Any:
    """Whether two boxes overlap too much.

    The quotient of float64 has the bits of a division of float32, which GPUs' fast mathematics only
    approximate.
    """
    zero = tirx.FloatImm(str(left[0].ty.dtype), 0.0)
    sides = [
        tirx.max(tirx.min(left[at + 2], right[at + 2]) - tirx.max(left[at], right[at]), zero)
        for at in range(2)
    ]
    shared = T.bind(sides[0] * sides[1])
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (left, right)]
    both = areas[0] + areas[1] - shared
    wide = tirx.Cast("float64", shared) / tirx.Cast("float64", both)
    found = tirx.Cast("float64", tirx.Cast(str(zero.ty.dtype), wide))
    return tirx.all(shared > zero, found > tirx.FloatImm("float64", limit))


def _wait_for_block() -> None:
    T.evaluate(T.tvm_storage_sync("shared"))


def _int64(value: Any) -> Any:
    return tirx.IntImm("int64", value) if isinstance(value, int) else value
