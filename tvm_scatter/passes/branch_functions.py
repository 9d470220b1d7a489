"""Moves the branches of ``relax.If`` into functions of their own.

TVM plans the memory of a function as if all of its branches ran. It may then reuse memory of a
branch that was not taken, which was never allocated. A scatter is often lowered to several steps
with intermediate tensors. TVM plans each function by itself, so a branch in a function of its own
is safe. Only branches that allocate memory besides their result are moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.expr import _update_type
from tvm.relax.utils import copy_with_new_vars

from tvm_scatter.emit.parameters import SCHEDULED
from tvm_scatter.lowering.reads import is_read
from tvm_scatter.ops.compaction import TRUE_POSITIONS
from tvm_scatter.ops.expectations import NAMES as EXPECTATIONS
from tvm_scatter.ops.host_numbers import ON_HOST
from tvm_scatter.ops.names import NAMES
from tvm_scatter.ops.read_ops import NAMES as READ_NAMES
from tvm_scatter.ops.scatter_call import is_scatter
from tvm_scatter.options import current_options

from .functions import is_ours_to_change

#: Attributes that the new functions take over from the function that had the branches.
_INHERITED = (
    "relax.force_pure",
    "relax.rewrite_cuda_graph.capture_symbolic_vars",
    "tir_non_negative_var",
    "tir_var_upper_bound",
)

#: Operators of which the host reads a result.
_READ_BACK = (TRUE_POSITIONS, ON_HOST, "relax.nonzero")


def BranchFunctions() -> tvm.transform.Pass:
    """The pass. It changes only functions that have branches and that scatter or read by index."""

    def move(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        found = [
            (name, function)
            for name, function in mod.functions.items()
            if is_ours_to_change(function)
            and _has_branches(function)
            and any(_is_access(mod, value) for value in _values(function.body))
        ]
        if not found:
            return mod
        builder = relax.BlockBuilder(mod)
        for name, function in found:
            builder.update_func(name, _Mover(builder, name, function).moved())
        return builder.get()

    return tvm.transform.module_pass(move, opt_level=0, name="BranchFunctions")


class _Mover:
    """Moves the branches of one function."""

    def __init__(self, builder: relax.BlockBuilder, name: Any, function: relax.Function) -> None:
        self.builder = builder
        self.name = f"{name.name_hint}_branch"
        self.function = function
        attrs = function.attrs or {}
        inherited = {key: attrs[key] for key in _INHERITED if key in attrs}
        self.attrs = tvm.ir.make_node("ir.DictAttrs", **inherited)

    def moved(self) -> relax.Function:
        old = self.function
        body = self._sequence(old.body)
        return relax.Function(old.params, body, old.ret_ty, old.is_pure, old.attrs)

    def _sequence(self, sequence: relax.SeqExpr) -> relax.SeqExpr:
        blocks = [
            # A dataflow block cannot contain branches.
            block
            if isinstance(block, relax.DataflowBlock)
            else relax.BindingBlock(list(map(self._binding, block.bindings)))
            for block in sequence.blocks
        ]
        return _with_type(relax.SeqExpr(blocks, sequence.body), sequence)

    def _binding(self, binding: relax.Binding) -> relax.Binding:
        if isinstance(binding, relax.MatchCast) or not isinstance(binding.value, relax.If):
            return binding
        value = binding.value
        branches = map(self._branch, (value.true_branch, value.false_branch))
        moved = _with_type(relax.If(value.cond, *branches), value)
        return relax.VarBinding(binding.var, moved)

    def _branch(self, branch: relax.SeqExpr) -> relax.SeqExpr:
        branch = self._sequence(branch)
        captured = relax.analysis.free_vars(branch)
        # TVM resolves a closure only in the function that makes it, so such a branch stays there.
        closures = any(isinstance(var.ty, relax.FuncType) for var in captured)
        return branch if closures or not _needs_memory(branch) else self._call(branch, captured)

    def _call(self, branch: relax.SeqExpr, captured: Sequence[relax.Var]) -> relax.SeqExpr:
        values = [var for var in captured if not _is_size(var)]
        used = relax.analysis.free_symbolic_vars(relax.Function(values, branch))
        sizes = list(dict.fromkeys([*filter(_is_size, captured), *used]))
        parameters, arguments = list(values), list(values)
        if sizes:
            parameters.append(relax.Var("sizes", relax.ShapeType(sizes)))
            arguments.append(relax.ShapeExpr(sizes))
        pure = not relax.analysis.contains_impure_call(branch)
        function = relax.Function(parameters, branch, None, pure, self.attrs)
        # Each variable and each symbolic size may be bound only once in a module.
        function = copy_with_new_vars(function)
        called = self.builder.add_func(function, self.name)
        call = self.builder.normalize(relax.Call(called, arguments))
        result = relax.Var("result", call.ty)
        binding = relax.VarBinding(result, call)
        return _with_type(relax.SeqExpr([relax.BindingBlock([binding])], result), call)


def _with_type(expression: relax.Expr, like: relax.Expr) -> relax.Expr:
    # A block builder would erase symbolic sizes from the type if they are bound before the
    # expression, so the type is set by hand.
    _update_type(expression, like.ty)
    return expression


def _is_size(var: relax.Var) -> bool:
    return isinstance(var.ty, tvm.ir.PrimType) and str(var.ty.dtype) == "int64"


def _has_branches(function: relax.Function) -> bool:
    return any(isinstance(value, relax.If) for value in _values(function.body))


def _values(sequence: relax.SeqExpr) -> Iterator[Any]:
    """The bound expressions of a sequence, with those in nested branches."""
    for block in sequence.blocks:
        for binding in block.bindings:
            yield binding.value
            if isinstance(binding.value, relax.If):
                yield from _values(binding.value.true_branch)
                yield from _values(binding.value.false_branch)


def _needs_memory(branch: relax.SeqExpr) -> bool:
    """Whether a branch allocates memory besides that of its result."""
    values = list(_values(branch))
    steps = sum(isinstance(getattr(value, "op", None), tvm.ir.Op) for value in values)
    return steps > 1 or any(is_scatter(value) or is_read(value) for value in values)


def _is_access(mod: tvm.IRModule, value: Any) -> bool:
    """Whether an expression is a scatter or a read of this package, or a step of a lowered one."""
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return False
    if is_scatter(value) or is_read(value):
        return current_options().enabled or value.op.name in (*NAMES, *READ_NAMES)
    if value.op.name in (*EXPECTATIONS, *_READ_BACK):
        return True
    called = value.args[0] if value.args else None
    if not isinstance(called, tvm.ir.GlobalVar) or not isinstance(mod[called], tirx.PrimFunc):
        return False
    return SCHEDULED in (mod[called].attrs or {})
