"""Where a function keeps its sizes, after TVM has lowered it for its virtual machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tvm
from tvm import relax

_ALLOCATE_HEAP = "vm.builtin.alloc_shape_heap"
_STORE_SHAPE = "vm.builtin.match_shape"
_READ_SHAPE = "vm.builtin.make_shape"
_USE_SHAPE = ("relax.vm.alloc_tensor", "vm.builtin.reshape")
#: The code of a size in the heap, where TVM stores and reads shapes.
_IN_HEAP = 1


class ShapeHeap:
    """The sizes that a function keeps in one tensor, its shape heap.

    Branches are left out: what they need is computed whether they run or not.

    Attributes
    ----------
    inputs : dict of int to (str, int)
        The tensor and the dimension whose size a place of the heap holds.
    extents : set of int
        The places that hold sizes of tensors which the function allocates.
    writers : list of tvm.ir.GlobalVar
        The functions that compute sizes from other sizes.
    """

    def __init__(self, function: relax.Function) -> None:
        self.inputs: dict[int, tuple[str, int]] = {}
        self.extents: set[int] = set()
        self.writers: list[Any] = []
        shapes: dict[Any, list[int]] = {}
        heap = function
        for variable, call in _calls(function):
            name, arguments = _called(call)
            if name == _ALLOCATE_HEAP:
                heap = variable
            elif name == _STORE_SHAPE:
                tensor = getattr(arguments[0], "name", "")
                for dimension, place in _places(arguments[2:]):
                    self.inputs[place] = (tensor, dimension)
            elif name == _READ_SHAPE:
                shapes[variable] = [place for _, place in _places(arguments[1:])]
            elif name in _USE_SHAPE:
                self.extents.update(*(shapes.get(each, ()) for each in arguments))
            elif isinstance(call.op, tvm.ir.GlobalVar) and any(map(heap.same_as, arguments)):
                self.writers.append(call.op)


def _calls(function: relax.Function) -> Iterator[tuple[Any, relax.Call]]:
    """The calls of a function, each with the variable that it is bound to."""
    body = function.body
    for block in body.blocks if isinstance(body, relax.SeqExpr) else ():
        for binding in block.bindings:
            if isinstance(binding, relax.VarBinding) and isinstance(binding.value, relax.Call):
                yield binding.var, binding.value


def _called(call: relax.Call) -> tuple[str, list[Any]]:
    """The name of what is called, and its arguments."""
    operator, arguments = call.op, list(call.args)
    if getattr(operator, "name", "") == "relax.call_builtin_with_ctx":
        operator, arguments = arguments[0], list(arguments[1].fields)
    name = getattr(operator, "global_symbol", None) or getattr(operator, "name", "")
    return str(name), arguments


def _places(described: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """The dimensions of a shape whose sizes are in the heap, and where: after their number, codes
    and places or numbers in turn."""
    for dimension in range(int(described[0])):
        code, place = described[1 + 2 * dimension : 3 + 2 * dimension]
        if int(code) == _IN_HEAP:
            yield dimension, int(place)
