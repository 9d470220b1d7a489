"""Where a function keeps its sizes, after TVM has lowered it for its virtual machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tvm
from tvm import relax

_ALLOCATE_HEAP = "vm.builtin.alloc_shape_heap"
_ALLOCATE_BYTES = "relax.vm.alloc_storage"
_STORE_SHAPE = "vm.builtin.match_shape"
_STORE_NUMBER = "vm.builtin.match_prim_value"
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
    arguments : dict of int to str
        The parameter that is the number which a place of the heap holds.
    parameters : dict of int to str
        The names of the sizes of parameters, and of these numbers, by their places.
    last_parameter : relax.Var or None
        What the call is bound to that stores the last of these.
    read : dict of int to str
        The places and names of sizes that were numbers in tensors or arguments: they may be any
        number.
    first_uses : dict of relax.Var to dict of int to str
        Of those, the sizes of tensors, by the first allocation after they are known: the variable
        that it is bound to.
    extents : set of int
        The places that hold sizes of tensors which the function allocates.
    bytes : set of int
        The places that hold numbers of bytes to allocate.
    writers : list of tvm.ir.GlobalVar
        The functions that compute sizes from other sizes.
    variable : relax.Var
        The heap itself.
    room : int
        How many sizes it holds.
    """

    def __init__(self, function: relax.Function) -> None:
        self.inputs: dict[int, tuple[str, int]] = {}
        self.arguments: dict[int, str] = {}
        self.parameters: dict[int, str] = {}
        self.last_parameter: Any = None
        self.read: dict[int, str] = {}
        self.first_uses: dict[Any, dict[int, str]] = {}
        self.extents: set[int] = set()
        self.bytes: set[int] = set()
        self.writers: list[Any] = []
        self.variable: Any = function
        self.room = 0
        shapes: dict[Any, list[int]] = {}
        casts = _casts(function)
        waiting: dict[int, str] = {}
        for variable, call in _calls(function):
            name, arguments = _called(call)
            if name == _ALLOCATE_HEAP:
                self.variable, self.room = variable, int(arguments[0])
            elif name == _STORE_SHAPE and isinstance(arguments[0].ty, relax.TensorType):
                tensor = getattr(arguments[0], "name", "")
                stored = list(_places(arguments[2:]))
                self.inputs.update((place, (tensor, dimension)) for dimension, place in stored)
                if any(map(arguments[0].same_as, function.params)) and arguments[0].ty.shape:
                    sizes = arguments[0].ty.shape.values
                    self.parameters.update((place, str(sizes[at])) for at, place in stored)
                    self.last_parameter = variable
            elif name == _STORE_SHAPE:
                named = casts.get(arguments[0], arguments[0].ty).values
                numbers = {place: str(named[at]) for at, place in _places(arguments[2:])}
                waiting |= numbers
                if any(map(arguments[0].same_as, function.params)):
                    self.parameters |= numbers
                    self.arguments |= dict.fromkeys(numbers, str(arguments[0].name))
                    self.last_parameter = variable
            elif name == _STORE_NUMBER and int(arguments[2]) == _IN_HEAP:
                waiting[int(arguments[3])] = str(arguments[0])
            elif name == _READ_SHAPE:
                shapes[variable] = [place for _, place in _places(arguments[1:])]
            elif name in (_ALLOCATE_BYTES, *_USE_SHAPE):
                used = [place for each in arguments for place in shapes.get(each, ())]
                (self.bytes if name == _ALLOCATE_BYTES else self.extents).update(used)
                if used and waiting:
                    self.first_uses[variable] = waiting
                    self.read |= waiting
                    waiting = {}
            elif isinstance(call.op, tvm.ir.GlobalVar) and any(
                map(self.variable.same_as, arguments)
            ):
                self.writers.append(call.op)
        self.read |= waiting
        for variable, sizes in list(self.first_uses.items()):
            self.first_uses[variable] = {at: sizes[at] for at in sizes if at in self.extents}


def _calls(function: relax.Function) -> Iterator[tuple[Any, relax.Call]]:
    """The calls of a function, each with the variable that it is bound to."""
    for binding in _bindings(function):
        if isinstance(binding, relax.VarBinding) and isinstance(binding.value, relax.Call):
            yield binding.var, binding.value


def _casts(function: relax.Function) -> dict[Any, Any]:
    """The types, with names of sizes, that shapes are cast to: TVM keeps them for nothing else."""
    casts = (each for each in _bindings(function) if isinstance(each, relax.MatchCast))
    return {each.value: each.ty for each in casts if isinstance(each.ty, relax.ShapeType)}


def _bindings(function: relax.Function) -> Iterator[Any]:
    body = function.body
    for block in body.blocks if isinstance(body, relax.SeqExpr) else ():
        yield from block.bindings


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
