"""What TVM may fuse a function with, where it reads at a place that depends on a size.

TVM takes such a function for opaque: it looks for variables in the place, and does not ask whether
they count anything. A concatenation of sequences of any length was fused with nothing.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, tirx

from tvm_scatter.emit.computed_updates import loads_of, substitute
from tvm_scatter.emit.expressions import varies

from .named_sizes import divides_by_sizes, variables_of

_STOCK = relax.transform.transform.AnnotateTIROpPattern
_PATTERN = "op_pattern"
#: TVM's number of functions that compute each element from elements at places of its own.
_INJECTIVE = 2
#: Stands for any size: the analysis does not compute with it.
_SOME_SIZE = 7


def AnnotatePatternsOfSizes() -> tvm.transform.Pass:
    """``relax.transform.AnnotateTIROpPattern``, which knows what a size is."""

    def annotate(function: tirx.PrimFunc, _mod: tvm.IRModule, _context: Any) -> tirx.PrimFunc:
        return with_pattern(function)

    first = tirx.transform.prim_func_pass(annotate, opt_level=0, name="PlacesOfSizes")
    passes = [first, _STOCK()]
    return tvm.transform.Sequential(passes, name="AnnotateTIROpPattern")


def install_patterns() -> None:
    """Let TVM's pipelines, which look the pass up when they run, find this one."""
    relax.transform.AnnotateTIROpPattern = AnnotatePatternsOfSizes


def uninstall_patterns() -> None:
    """Restore TVM's own pass."""
    relax.transform.AnnotateTIROpPattern = _STOCK


def with_pattern(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function, marked as injective if it is that for every size.

    Parameters
    ----------
    function : tvm.tirx.PrimFunc
        One that is marked stays as it is. One that divides places by sizes is left to TVM: that is
        dear to do again in each function that reads it, and LLVM may not end with it.
    """
    if _PATTERN in (function.attrs or {}):
        return function
    sizes = variables_of(function)
    places = [index for load in loads_of(function.body) for index in load.indices]
    if not any(varies(place, size) for place in places for size in sizes):
        return function
    if divides_by_sizes(function.body):
        return function
    one_size = {size: tirx.IntImm(str(size.ty), _SOME_SIZE) for size in sizes}
    constant = function.with_body(substitute(function.body, one_size))
    marked = _STOCK()(tvm.IRModule({"constant": constant}))["constant"]
    if int(marked.attrs[_PATTERN]) > _INJECTIVE:
        return function
    return function.with_attr(_PATTERN, _INJECTIVE)
