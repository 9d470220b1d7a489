"""Sums and quotients of sizes, such as ``n + 2`` and ``n // 2``, by one name in a function.

TVM's analysis of loops fails where it takes a product of such a sum apart and cannot divide it by
the sum any more: a transpose does not compile, and a schedule for GPUs is given up. Where it
divides by products of quotients, compiling takes fifty times as long.
"""

from __future__ import annotations

from math import gcd
from typing import Any, NamedTuple

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Var
from tvm.sym import detect_linear_equation
from tvm.tirx.analysis import undefined_vars

from tvm_scatter.emit.expressions import all_of
from tvm_scatter.emit.parameters import SCHEDULED
from tvm_scatter.ops.shapes import same_size

#: Relax counts in this type. Functions that are written by hand may count in another.
_DTYPE = "int64"
_SUMS = (tirx.Add, tirx.Sub)
_DIVISIONS = (tirx.FloorDiv, tirx.FloorMod)


def NameSizes() -> tvm.transform.Pass:
    """The pass that applies :func:`with_named_sizes` to the functions of a module."""

    def name(function: tirx.PrimFunc, _mod: tvm.IRModule, _context: Any) -> tirx.PrimFunc:
        return with_named_sizes(function)

    return tirx.transform.prim_func_pass(name, opt_level=0, name="NameSizes")


class _Sum(NamedTuple):
    """A sum of sizes: how often it is ``factors``, which have no common divisor."""

    times: int
    factors: tuple[int, ...]


def with_named_sizes(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function, in which each sum or quotient that is a size of a tensor has a name.

    Parameters
    ----------
    function : tvm.tirx.PrimFunc
        One that is scheduled already stays as it is.
    """
    formulas = any(not isinstance(each, (Var, tirx.IntImm)) for each in _sizes_of(function))
    if not formulas or SCHEDULED in (function.attrs or {}):
        return function
    return _with_named_sums(_with_named_formulas(function))


def _with_named_formulas(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with names of sums of products and quotients.

    Quotients themselves get names only if it divides by sizes, as reshapes do.
    """
    variables, sizes = variables_of(function), _sizes_of(function)
    kinds = (*_SUMS, *_DIVISIONS) if divides_by_sizes(function.body) else _SUMS
    names: list[tuple[Any, Any]] = []
    for size in sizes:
        if not isinstance(size, kinds) or _sum(size, variables) is not None:
            continue
        if not any(same_size(size, known) for known, _ in names):
            names.append((size, tirx.Var("size", _DTYPE)))
    if not names:
        return function

    def named(expression: Any) -> Any:
        if not set(undefined_vars(expression)).issubset(variables):
            return expression
        equal = (name for known, name in names if same_size(expression, known))
        return next(equal, expression)

    return tvm_ffi.structural_map(function, (kinds, named), order="pre")


def divides_by_sizes(body: tirx.Stmt) -> bool:
    return any(not isinstance(each.b, tirx.IntImm) for each in all_of(body, _DIVISIONS))


def _with_named_sums(function: tirx.PrimFunc) -> tirx.PrimFunc:
    variables, sizes = variables_of(function), _sizes_of(function)
    sums = [_sum(size, variables) for size in sizes]
    # A tensor whose size is the name itself says at run time what it is.
    once: dict[tuple[int, ...], int] = {}
    for each in sums:
        if each is not None:
            once[each.factors] = min(each.times, once.get(each.factors, each.times))
    if not once:
        return function
    names = {factors: tirx.Var("size", _DTYPE) for factors in once}

    def named(expression: Any) -> Any:
        found = _sum(expression, variables)
        if found is None or found.factors not in names or found.times % once[found.factors]:
            return expression
        name, times = names[found.factors], found.times // once[found.factors]
        return name if times == 1 else name * times

    return tvm_ffi.structural_map(function, ((*_SUMS, tirx.Mul), named), order="pre")


def _sizes_of(function: tirx.PrimFunc) -> list[Any]:
    tensors = [each.ty for each in function.params if isinstance(each.ty, tirx.BufferType)]
    sizes = [size for tensor in tensors for size in tensor.shape]
    return [size for size in sizes if str(size.ty) == _DTYPE]


def variables_of(function: tirx.PrimFunc) -> list[Any]:
    used = (each for size in _sizes_of(function) for each in undefined_vars(size))
    return list(dict.fromkeys(used))


def _sum(expression: Any, variables: list[Any]) -> _Sum | None:
    """What an expression is, if it is a sum of sizes or of a size and a number."""
    if not isinstance(expression, (*_SUMS, tirx.Mul)):
        return None
    if not set(undefined_vars(expression)).issubset(variables):
        return None
    parts = detect_linear_equation(expression, variables)
    if not parts or not all(isinstance(each, tirx.IntImm) for each in parts):
        return None
    factors = [int(each) for each in parts]
    if sum(map(bool, factors)) < 2:
        return None
    times = gcd(*factors)
    return _Sum(times, tuple(each // times for each in factors))
