"""What is computed of each element of a product is computed in the product's own shape.

PyTorch multiplies the rows of a tensor of any rank by a matrix as the rows of one matrix, and gives
the result its rank back. TVM fuses a product with what follows it element by element, but not
across a change of shape. So the shape is changed behind these operators instead. What is widened
goes with them if it is narrowed again: a norm of rows widens for itself, and computes it itself.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_scatter.emit.tensors import element_bytes
from tvm_scatter.lowering.inlined import ELEMENTWISE
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.shapes import is_empty, same_shape, static_shape

from .analysis.bindings import Bindings
from .functions import with_changes
from .report import note

_PRODUCT, _RESHAPE = "relax.matmul", "relax.reshape"


def ShapesBehindProducts() -> tvm.transform.Pass:
    """The pass. It changes functions in which the shape of a product is changed."""

    def rewrite(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        return with_changes(mod, lambda name, function: _rewritten(name.name_hint, function))

    return tvm.transform.module_pass(rewrite, opt_level=0, name="ShapesBehindProducts")


def _rewritten(name: str, function: relax.Function) -> relax.Function | None:
    mutator = _Mutator(Bindings(function))
    changed = mutator.visit_expr(function)
    for product, followers in mutator.followers.items():
        if followers:
            text = f"computes in its own shape what follows it: {', '.join(followers)}"
            note("products", f"{name}.{product}", text)
    return relax.analysis.remove_all_unused(changed) if mutator.found else None


@mutator
class _Mutator(PyExprMutator):
    def __init__(self, bindings: Bindings) -> None:
        super().__init__()
        self.found = False
        self._readers = bindings.readers()
        #: By a product, what is computed of its elements in its own shape.
        self.followers: dict[str, list[str]] = {}
        #: The products, each by itself and by what is computed of its elements.
        self._products: dict[Any, str] = {}
        #: By a variable the same elements in the shape of their product.
        self._flat: dict[Any, Any] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = self.visit_expr(binding.value)
        flat = self._in_shape_of_product(value) if self._stays(binding) else None
        if flat is not None:
            self.found = True
            if operator_of(value) != _RESHAPE:
                self.followers[self._products[flat]].append(binding.var.name)
            value = relax.op.reshape(flat, binding.var.ty.shape)
        super().visit_var_binding_(relax.VarBinding(binding.var, value))
        new = self.visit_expr(binding.var)
        if operator_of(value) == _PRODUCT:
            self._products[new] = binding.var.name
            self.followers[binding.var.name] = []
        elif operator_of(value) == _RESHAPE and value.args[0] in self._products:
            self._flat[new] = value.args[0]
        elif operator_of(value) in ELEMENTWISE:
            self._note_follower(new, value)

    def _stays(self, binding: relax.VarBinding) -> bool:
        """Whether what is computed is as narrow as what it is computed of, or narrowed later."""
        if is_empty(binding.var):
            # TVM takes a zero in a new shape for the size that the tensor had at that place.
            return False
        if operator_of(binding.value) not in ELEMENTWISE:
            return True
        widths = [element_bytes(each) for each in binding.value.args if each in self._readers]
        if element_bytes(binding.var) <= max(widths, default=8):
            return True
        return self._comes_back(binding.var, max(widths))

    def _comes_back(self, var: Any, width: int) -> bool:
        """Whether only elementwise operators read a value, and at last narrow it."""
        readers = self._readers.get(var, [])
        return bool(readers) and all(
            operator_of(each.value) in ELEMENTWISE
            and (element_bytes(each.var) <= width or self._comes_back(each.var, width))
            for each in readers
        )

    def _note_follower(self, var: Any, value: Any) -> None:
        """What is computed of a product's elements is of that product, before its shape changes."""
        shape = static_shape(var)
        for each in value.args:
            if each in self._products and same_shape(static_shape(each), shape):
                self._products[var] = self._products[each]
                return

    def _in_shape_of_product(self, value: Any) -> Any:
        """The elements that a call computes or moves, in the shape of the product they are of."""
        operands = [each for each in getattr(value, "args", ()) if each in self._flat]
        if not operands:
            return None
        flat = self._flat[operands[0]]
        if operator_of(value) == _RESHAPE:
            return flat
        if operator_of(value) not in ELEMENTWISE:
            return None
        arguments = [self._argument(each, operands[0]) for each in value.args]
        if any(each is None for each in arguments):
            return None
        found = self.builder_.emit(relax.Call(value.op, arguments, value.attrs))
        self._products[found] = self._products[flat]
        return found

    def _argument(self, argument: Any, operand: Any) -> Any:
        """An argument beside an operand whose shape changes; ``None`` if it cannot stay beside."""
        flat, shape = self._flat[operand], static_shape(argument)
        if argument in self._flat:
            same = same_shape(shape, static_shape(operand))
            same = same and same_shape(static_shape(self._flat[argument]), static_shape(flat))
            return self._flat[argument] if same else None
        if shape == []:
            return argument
        if same_shape(shape, static_shape(operand)):
            # A tensor that lies in memory is seen in the other shape.
            return self.builder_.emit(relax.op.reshape(argument, flat.ty.shape))
        # A number for each column goes with both shapes, if they have the same columns.
        columns = [(static_shape(each) or [])[-1:] for each in (operand, flat)]
        return argument if all(same_shape(shape, each) for each in columns) else None
