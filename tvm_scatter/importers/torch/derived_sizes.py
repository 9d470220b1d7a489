"""Sizes of inputs that are formulas, such as ``2 * h``, of which no input has ``h`` by itself.

A Relax function reads ``h`` only from an axis of that size. So such an axis gets a size of its own,
from which ``h`` is computed when the function begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tvm
from tvm import relax, sym, tirx
from tvm.relax.analysis import definable_tir_vars_in_type, tir_vars_in_type

from tvm_scatter.importers.shapes import shape_of

#: Returns its argument. TVM would replace a size by its formula in some places only, and then
#: misses it in the others.
_COPY = "vm.builtin.copy"


def with_computed_sizes(mod: tvm.IRModule) -> tvm.IRModule:
    """The module, after the sizes that no input has by itself are computed in ``main``.

    Parameters
    ----------
    mod : tvm.IRModule
        An imported program, which is changed.

    Returns
    -------
    mod : tvm.IRModule
        The same module. An axis whose size does not have the formula is an error at run time.
    """
    function = mod["main"]
    unknown = _unknown_sizes(function)
    if unknown:
        mod["main"] = _computing(function, unknown)
    return mod


def _unknown_sizes(function: relax.Function) -> set[Any]:
    """The sizes in formulas of parameters that are the size of no axis."""
    types = [parameter.ty for parameter in function.params]
    used = {size for type_ in types for size in tir_vars_in_type(type_)}
    return used - {size for type_ in types for size in definable_tir_vars_in_type(type_)}


def _computing(function: relax.Function, unknown: set[Any]) -> relax.Function:
    parameters, casts = [], []
    formulas: list[tuple[Any, Any]] = []
    for parameter in function.params:
        found = _own_sizes(parameter, unknown)
        formulas += found.values()
        own = _with_sizes(parameter, {axis: size for axis, (_, size) in found.items()})
        parameters.append(own)
        if found:
            casts.append(relax.MatchCast(parameter, own, parameter.ty))
    front = relax.BindingBlock([*_computed(formulas, unknown), *casts])
    body = relax.SeqExpr([front, *function.body.blocks], function.body.body)
    return relax.Function(
        parameters, body, function.ret_ty, function.is_pure, function.attrs, function.span
    )


def _own_sizes(parameter: Any, unknown: set[Any]) -> dict[int, tuple[Any, Any]]:
    """By axis: a formula with unknown sizes, and a new size for it."""
    if not any(size in unknown for size in tir_vars_in_type(parameter.ty)):
        return {}
    return {
        axis: (formula, tirx.Var(f"{parameter.name}_{axis}", "int64"))
        for axis, formula in enumerate(shape_of(parameter))
        if _unknown_in(formula, unknown)
    }


def _unknown_in(formula: Any, unknown: set[Any]) -> list[Any]:
    if isinstance(formula, int):
        return []
    return [
        each for each in tirx.analysis.undefined_vars(tirx.Evaluate(formula)) if each in unknown
    ]


def _with_sizes(parameter: Any, sizes: dict[int, Any]) -> Any:
    if not sizes:
        return parameter
    shape = [sizes.get(axis, size) for axis, size in enumerate(shape_of(parameter))]
    return relax.Var(parameter.name, relax.TensorType(shape, parameter.ty.dtype))


def _computed(formulas: Iterable[tuple[Any, Any]], unknown: set[Any]) -> list[relax.Binding]:
    """Bindings that compute each unknown size from the first axis whose formula has it alone."""
    bindings: list[relax.Binding] = []
    known: set[Any] = set()
    for formula, size in formulas:
        wanted = _unknown_in(formula, unknown - known)
        if len(wanted) != 1 or not (solved := sym.detect_linear_equation(formula, wanted)):
            continue
        factor, offset = solved
        value = relax.ShapeExpr([tirx.floordiv(size - offset, factor)])
        copy = relax.op.call_pure_packed(_COPY, value, ty_args=relax.ShapeType(ndim=1))
        type_ = relax.ShapeType(wanted)
        bindings.append(relax.MatchCast(relax.Var("sizes", type_), copy, type_))
        known.add(wanted[0])
    return bindings
