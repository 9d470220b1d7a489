"""Sizes that a cast names a second time, under the name that they had.

What TVM makes of a slice whose places are computed has sizes of its own, and the cast behind it
says how the rest of the function calls them. At the end of FuseTIR, TVM replaces the second names
by the first, but not in the types of what was cast: a call that returns its operand then seems to
return a tensor of another shape, and the model fails to compile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tvm_ffi
from tvm import relax, tirx
from tvm.ir import Var


def with_known_sizes(function: relax.Function) -> relax.Function:
    """The function itself if no cast names a size that has a name already."""
    met = {size for parameter in function.params for size in _sizes(parameter.ty)}
    known: dict[Any, Any] = {}
    for cast in _casts(function.body):
        sizes, names = _sizes(cast.value.ty), _sizes(cast.var.ty)
        if sizes and len(sizes) == len(names):
            fresh = {name: size for name, size in zip(names, sizes, strict=True) if name not in met}
            known |= {
                name: _replaced(size, known)
                for name, size in fresh.items()
                # A constant would leave sums of constants behind, which TVM never computes.
                if isinstance(name, Var) and not isinstance(size, tirx.IntImm)
            }
        met.update(names)
    return _replaced(function, known) if known else function


def _casts(body: Any) -> Iterator[relax.MatchCast]:
    """The casts of a function and of its branches, in the order in which they run."""
    for block in body.blocks if isinstance(body, relax.SeqExpr) else ():
        for each in block.bindings:
            if isinstance(each, relax.MatchCast):
                yield each
            elif isinstance(each.value, relax.If):
                yield from _casts(each.value.true_branch)
                yield from _casts(each.value.false_branch)


def _sizes(type_: Any) -> Sequence[Any]:
    """The sizes that a type of a tensor or of a shape says, if it does."""
    if isinstance(type_, relax.TensorType):
        type_ = getattr(type_.shape, "ty", None)
    return getattr(type_, "values", None) or ()


def _replaced(value: Any, known: dict[Any, Any]) -> Any:
    return tvm_ffi.structural_map(value, (Var, lambda variable: known.get(variable, variable)))
