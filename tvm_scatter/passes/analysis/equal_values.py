"""Which bindings of a function certainly compute one value, those of unknown size included.

A size that only the data say is a variable of its own for each ``match_cast``. Where two casts are
of one value, their sizes are one, and so is what is computed of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import Var
from tvm.relax.analysis import definable_tir_vars_in_type

from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.shapes import same_shape, static_shape

from .bindings import Bindings
from .created import ALLOCATION
from .dependence import overwritten
from .effects import may_write
from .sharing import shared_operands
from .size_order import sizes_of_parameters

#: What gives a tensor a shape, which it may have already.
_SHAPES = tuple(f"relax.{name}" for name in ("broadcast_to", "flatten", "reshape", "squeeze"))
#: What each evaluation of is something else, or does something.
_EACH_ITS_OWN = (ALLOCATION, "relax.nn.dropout", "relax.assert_op", "relax.print")
#: Constants up to this size are compared, larger ones are equal to themselves.
_COMPARED_ELEMENTS = 64


@dataclass(frozen=True)
class _Found:
    """The first binding of a value, its dataflow block, and the sizes that it makes known."""

    binding: relax.Binding
    block: int
    sizes: tuple[Any, ...]


class EqualValues:
    """The values of a function's bindings, its branches left out.

    Attributes
    ----------
    first : dict
        For each variable whose value an earlier one has, the first such variable. It is defined
        wherever the later one is read.
    sizes : dict
        For each size that is certainly equal to an earlier one, that one.
    values : dict
        The expression that each variable is bound to.
    """

    def __init__(self, function: relax.Function) -> None:
        self.first: dict[Any, Any] = {}
        self.sizes: dict[Any, Any] = {}
        self.values: dict[Any, Any] = {}
        self._found: dict[Hashable, _Found] = {}
        self._stand_ins: list[Any] = []
        self._sizes = sizes_of_parameters(function)
        #: How many bindings so far may have written.
        self._writes = 0
        written = overwritten(function, Bindings(function))
        self._written = frozenset[Any]().union(*written)
        for block, binding in _bindings(function):
            self.values[binding.var] = binding.value
            self._add(binding, block)
            self._writes += may_write(binding.value)

    def _add(self, binding: relax.Binding, block: int) -> None:
        operand = _unchanged(binding.value)
        if operand is not None and not {binding.var, operand} & self._written:
            first = self.first.get(operand, operand)
            if _outlives(first, binding.var):
                self.first[binding.var] = first
            return
        known = self._sizes
        new = tuple(
            each for each in definable_tir_vars_in_type(binding.var.ty) if each not in known
        )
        # The contents of a variable that is written to are no longer those that it was bound to.
        key = None if binding.var in self._written else self._key_of(binding, new)
        found = self._found.get(key)
        if key is not None and found is None:
            self._found[key] = _Found(binding, block, new)
        elif found is not None and _reaches(found, binding, block):
            self.first[binding.var] = found.binding.var
            self.sizes |= zip(new, found.sizes, strict=True)
        self._sizes |= {*new}

    def _key_of(self, binding: relax.Binding, new: tuple[Any, ...]) -> Hashable | None:
        """What bindings of one value have in common; ``None`` if another may have another value."""
        value = self._key(binding.value)
        while len(self._stand_ins) < len(new):
            self._stand_ins.append(tirx.Var("size", "int64"))
        instead = dict(zip(new, self._stand_ins, strict=False))
        type_ = _replaced(binding.var.ty, {**self.sizes, **instead})
        return None if value is None else (value, tvm_ffi.StructuralKey(type_))

    def _key(self, value: Any) -> Hashable | None:
        if isinstance(value, Var):
            return self.first.get(value, value)
        if isinstance(value, relax.Tuple):
            return self._keys("tuple", value.fields)
        if isinstance(value, relax.TupleGetItem):
            return self._keys(int(value.index), [value.tuple_value])
        if isinstance(value, tvm.ir.GenericConst):
            return _key_of_constant(value)
        if isinstance(value, relax.Call):
            return self._key_of_call(value)
        if isinstance(value, relax.If | relax.SeqExpr | relax.Function):
            return None
        return tvm_ffi.StructuralKey(_replaced(value, self.sizes))

    def _key_of_call(self, call: relax.Call) -> Hashable | None:
        name = operator_of(call)
        if not name or name in _EACH_ITS_OWN or may_write(call):
            return None
        if shared_operands(call, call) is None:
            # An operator that nothing is known of, such as a function of a library.
            return None
        attrs, types = (
            tvm_ffi.StructuralKey(_replaced(each, self.sizes))
            for each in (call.attrs, call.ty_args)
        )
        return self._keys((name, self._writes, attrs, types), call.args)

    def _keys(self, kind: Hashable, parts: Any) -> Hashable | None:
        keys = tuple(map(self._key, parts))
        return None if None in keys else (kind, keys)


def _bindings(function: relax.Function) -> Iterator[tuple[int, relax.Binding]]:
    """The bindings with the number of their dataflow block, 0 for none."""
    for number, block in enumerate(function.body.blocks, 1):
        inside = number if isinstance(block, relax.DataflowBlock) else 0
        for binding in block.bindings:
            yield inside, binding


def _unchanged(value: Any) -> Any:
    """The variable that a call returns in the shape that it has; ``None`` if it does not."""
    if operator_of(value) not in _SHAPES or not isinstance(value.args[0], Var):
        return None
    shapes = [static_shape(each) for each in (value, value.args[0])]
    return value.args[0] if same_shape(*shapes) else None


def _reaches(found: _Found, binding: relax.Binding, block: int) -> bool:
    """Whether the first variable of a value is defined wherever a later one is read."""
    var = found.binding.var
    in_block = isinstance(var, relax.DataflowVar)
    return _outlives(var, binding.var) and (found.block == block or not in_block)


def _outlives(var: Any, other: Any) -> bool:
    """Whether a variable is defined where another one is, in the block or outside of it."""
    return isinstance(other, relax.DataflowVar) or not isinstance(var, relax.DataflowVar)


def _key_of_constant(constant: Any) -> Hashable:
    value = constant.value
    if not isinstance(value, tvm.runtime.Tensor) or np.prod(value.shape) > _COMPARED_ELEMENTS:
        return constant
    return str(constant.ty.dtype), tuple(map(int, value.shape)), value.numpy().tobytes()


def _replaced(part: Any, sizes: dict[Any, Any]) -> Any:
    """A type, a size or an attribute with other sizes."""
    if part is None or not sizes:
        return part
    return tvm_ffi.structural_map(part, (Var, lambda size: sizes.get(size, size)))
