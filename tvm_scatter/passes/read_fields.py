"""Reads a field of a tuple where it was made, so that the other fields need not be computed.

Importers make a tuple of all results of an operator, such as of bags or of sorts, also where a
program reads one of them. What only such a tuple reads is no longer computed.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from .functions import with_changes


def ReadFields() -> tvm.transform.Pass:
    """The pass."""

    def read(mod: tvm.IRModule, _context: object) -> tvm.IRModule:
        return with_changes(mod, lambda _, function: _with_fields(mod, function))

    return tvm.transform.module_pass(read, opt_level=0, name="ReadFields")


def _with_fields(mod: tvm.IRModule, function: relax.Function) -> relax.Function | None:
    reader = _Reader(mod)
    changed = reader.visit_expr(function)
    return relax.analysis.remove_all_unused(changed) if reader.reads_some else None


@mutator
class _Reader(PyExprMutator):
    """Puts fields in place of reads of tuples that were made in the same function."""

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._tuples: dict[relax.Var, relax.Tuple] = {}
        self.reads_some = False

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = binding.value
        field = self._field(value) if isinstance(value, relax.TupleGetItem) else None
        if isinstance(field, relax.Var) and isinstance(binding.var, relax.DataflowVar):
            self.reads_some = True
            self.set_var_remap(binding.var, field)
            return
        super().visit_var_binding_(binding)
        if isinstance(value, relax.Tuple) and _lives_as_long(value, binding.var):
            self._tuples[self.visit_expr(binding.var)] = value

    def visit_tuple_getitem_(self, read: relax.TupleGetItem) -> relax.Expr:
        field = self._field(read)
        if field is None:
            return super().visit_tuple_getitem_(read)
        self.reads_some = True
        return field

    def _field(self, read: relax.TupleGetItem) -> relax.Expr | None:
        made = self._tuples.get(self.visit_expr(read.tuple_value))
        return None if made is None else self.visit_expr(made.fields[read.index])


def _lives_as_long(made: relax.Tuple, var: relax.Var) -> bool:
    """Whether all fields may be read where a tuple may: some end with a block that it outlives."""
    if isinstance(var, relax.DataflowVar):
        return True
    return not any(isinstance(each, relax.DataflowVar) for each in relax.analysis.free_vars(made))
