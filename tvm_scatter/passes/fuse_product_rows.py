"""A product of rows that are read by index reads them itself, on GPUs.

TVM fuses a product with what follows it, never with what comes before it. So the layer of a network
that works on edges (EdgeConv, PointNet++) writes a row for each edge to memory, and the product
reads it again. The schedule of :mod:`tvm_scatter.schedules.gpu.products` brings each row to shared
memory once for each block of its columns. It may as well be read where it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_scatter.lowering.fused_reads import INJECTIVE, IS_READ, ROOT
from tvm_scatter.ops.called import CALL_TIR, operator_of
from tvm_scatter.ops.names import NAMES, STOCK_OPERATORS
from tvm_scatter.options import current_options

from .analysis.bindings import Binding, Bindings
from .analysis.large_products import blocks_of_columns
from .functions import is_ours_to_change

_PATTERN = "op_pattern"
#: TVM's number of a function that is fused with nothing.
_OPAQUE = 8
#: So often may each row be computed, at most. Twice, what is read for a sum or difference of two
#: rows is still less than what would be written and read again.
_MOST_BLOCKS = 2


def fuse_product_rows(mod: tvm.IRModule) -> tvm.IRModule:
    """The module, in which products compute the rows that are read by index for them alone.

    Parameters
    ----------
    mod : tvm.IRModule
        With functions that are legalized and have TVM's patterns, but are not fused.
    """
    found = _found(mod)
    if not found:
        return mod
    merger = _Merger(mod)
    for name, groups in found.items():
        merger.merge(name, groups)
    return merger.builder_.get()


def planned_product_rows(mod: tvm.IRModule) -> Iterator[tuple[str, str]]:
    """Where there are such products, and what they compute, in a module that is not legalized."""
    values = [
        operator_of(binding.value)
        for function in mod.functions.values()
        if is_ours_to_change(function)
        for binding in Bindings(function)
    ]
    if "relax.matmul" not in values:
        return
    legalize = relax.transform.LegalizeOps(skip_ops=[*STOCK_OPERATORS, *NAMES])
    steps = [legalize, relax.transform.AnnotateTIROpPattern()]
    for name, groups in _found(tvm.transform.Sequential(steps)(mod)).items():
        for product, group in groups.items():
            computed = ", ".join(each.value.args[0].name_hint for each in group[:-1])
            yield f"{name.name_hint}.{product.name}", computed


def _found(mod: tvm.IRModule) -> dict[Any, dict[Any, list[Binding]]]:
    """Of each function with such products, for the variable of each, what it computes."""
    if not current_options().products:
        return {}
    return {
        name: groups
        for name, function in mod.functions.items()
        if is_ours_to_change(function) and (groups := _groups(Bindings(function), mod))
    }


def _groups(bindings: Bindings, mod: tvm.IRModule) -> dict[Any, list[Binding]]:
    """For the variable of each such product, what it computes, itself last."""
    found: dict[Any, list[Binding]] = {}
    for binding in bindings:
        function = _called(binding, mod)
        if function is not None and _is_product(function):
            group = _group(binding, bindings, mod)
            if any(IS_READ in mod[each.value.args[0]].attrs for each in group):
                found[binding.var] = group
    return found


def _group(product: Binding, bindings: Bindings, mod: tvm.IRModule) -> list[Binding]:
    """A product behind what computes its rows from reads by index, and what else they need."""
    readers = bindings.readers()
    inside, wanted = {product.var}, {product.value.args[1].fields[0]}
    group = [product]
    for binding in reversed(bindings.all[: product.at]):
        if binding.var not in wanted or binding.fused != product.fused:
            continue
        function = _called(binding, mod)
        is_alone = all(reader.var in inside for reader in readers[binding.var])
        is_inner = isinstance(binding.var, relax.DataflowVar) and is_alone
        if function is None or _pattern(function) > INJECTIVE or not is_inner:
            continue
        inside.add(binding.var)
        group.append(binding)
        if IS_READ not in function.attrs:
            wanted |= binding.reads
    return group[::-1]


def _called(binding: Binding, mod: tvm.IRModule) -> tirx.PrimFunc | None:
    """The function that computes the one tensor of a binding in a dataflow block."""
    value = binding.value
    if not binding.fused or operator_of(value) != CALL_TIR:
        return None
    if len(value.args) > 2 or not isinstance(value.ty, relax.TensorType):
        return None
    function = mod[value.args[0]]
    return function if isinstance(function, tirx.PrimFunc) else None


def _is_product(function: tirx.PrimFunc) -> bool:
    blocks = blocks_of_columns(function) if _pattern(function) == ROOT else None
    return blocks is not None and blocks <= _MOST_BLOCKS


def _pattern(function: tirx.PrimFunc) -> int:
    return int((function.attrs or {}).get(_PATTERN, _OPAQUE))


@mutator
class _Merger(PyExprMutator):
    """Puts one call in place of each group."""

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._mod = mod
        self._groups: Mapping[Any, list[Binding]] = {}

    def merge(self, name: Any, groups: Mapping[Any, list[Binding]]) -> None:
        """Change a function of the module."""
        self._groups = groups
        changed = relax.analysis.remove_all_unused(self.visit_expr(self._mod[name]))
        self.builder_.update_func(name, changed)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        group = self._groups.get(binding.var)
        merged = None if group is None else _merged(group, self._mod)
        if merged is not None:
            function, arguments = merged
            called = self.builder_.add_func(function, "matmul_of_read_rows")
            value = relax.op.call_tir(called, list(arguments), binding.value.ty)
            binding = relax.VarBinding(binding.var, value)
        super().visit_var_binding_(binding)


def _merged(
    group: Sequence[Binding], mod: tvm.IRModule
) -> tuple[tirx.PrimFunc, Sequence[Any]] | None:
    """One function for all, and its arguments; ``None`` if these do not say how large it is."""
    inside = {binding.var for binding in group}
    arguments: list[Any] = []
    for binding in group:
        for argument in binding.value.args[1].fields:
            is_known = argument in inside or any(map(argument.same_as, arguments))
            if not is_known:
                arguments.append(argument)
    if not _say_sizes(arguments, group):
        return None
    return _fused(group, arguments, mod), arguments


def _say_sizes(arguments: Sequence[Any], group: Sequence[Binding]) -> bool:
    """Whether each variable in a size is itself a size of an argument."""
    said = {size for each in arguments for size in each.ty.shape if isinstance(size, tirx.Var)}
    types = [*(each.ty for each in arguments), *(binding.value.ty for binding in group)]
    needed = {
        variable
        for each in types
        for size in each.shape
        for variable in tirx.analysis.undefined_vars(size)
    }
    return needed <= said


def _fused(group: Sequence[Binding], arguments: Sequence[Any], mod: tvm.IRModule) -> tirx.PrimFunc:
    """The functions of a group as one, by TVM's own pass for functions that it has put together."""
    builder = relax.BlockBuilder()
    functions = {
        called: builder.add_func(mod[called], called.name_hint)
        for called in dict.fromkeys(binding.value.args[0] for binding in group)
    }
    inner = _parameters(arguments)
    computed: dict[Any, Any] = {}

    def given(argument: Any) -> Any:
        if argument in computed:
            return computed[argument]
        pairs = zip(arguments, inner, strict=True)
        return next(parameter for each, parameter in pairs if argument.same_as(each))

    with builder.function("product", inner, {"Primitive": True}, private=True):
        with builder.dataflow():
            for binding in group:
                call = binding.value
                operands = [given(each) for each in call.args[1].fields]
                value = relax.op.call_tir(functions[call.args[0]], operands, call.ty)
                computed[binding.var] = builder.emit(value)
            output = builder.emit_output(computed[group[-1].var])
        builder.emit_func_output(output)
    product = builder.get().get_global_var("product")
    outer = _parameters(arguments)
    with builder.function("main", outer):
        builder.emit_func_output(builder.emit(relax.Call(product, outer)))
    fused = relax.transform.FuseTIR()(builder.get())
    (whole,) = (each for each in fused.functions.values() if isinstance(each, tirx.PrimFunc))
    return whole.with_attr(_PATTERN, ROOT)


def _parameters(arguments: Sequence[Any]) -> list[relax.Var]:
    return [relax.Var(f"operand{at}", each.ty) for at, each in enumerate(arguments)]
