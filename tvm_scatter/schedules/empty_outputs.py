"""TVM's sorts and scans, which are left out if their results have no elements.

A scan writes the first element of a line before it asks for the line's length. Kernels that sort
and scan are launched for no lines, too: TVM's runtime launches one block where none is asked for.
They write to tensors that have no memory.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import tvm
from tvm import relax, s_tir, tirx

from .empty_launches import with_body

#: Not replaced where it is defined, so that it is found after a reload of this package, too.
_STOCK = relax.backend.dispatch_sort_scan.DispatchSortScan
_DISPATCHED = "tvm_scatter.sort_or_scan"


def MarkedDispatchSortScan(*arguments: Any, **named: Any) -> tvm.transform.Pass:
    """``relax.backend.DispatchSortScan``, which marks the functions that it makes."""

    def dispatch(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        dispatched = _STOCK(*arguments, **named)(mod)
        known = set(mod.functions)
        for name, function in dispatched.functions_items():
            if isinstance(function, tirx.PrimFunc) and name not in known:
                dispatched[name] = function.with_attr(_DISPATCHED, True)
        return dispatched

    return tvm.transform.module_pass(dispatch, opt_level=0, name="DispatchSortScan")


def LeaveOutEmptyOutputs() -> tvm.transform.Pass:
    """The pass: marked functions do nothing if they have nothing to write.

    It comes behind all schedules, which know no loop around a kernel.
    """

    def leave_out(function: tirx.PrimFunc, _mod: tvm.IRModule, _context: Any) -> tirx.PrimFunc:
        if not (function.attrs or {}).get(_DISPATCHED, False):
            return function
        return _left_out(function.without_attr(_DISPATCHED))

    return tirx.transform.prim_func_pass(leave_out, opt_level=0, name="LeaveOutEmptyOutputs")


def install_marks() -> None:
    """Let TVM's pipelines, which look the pass up when they run, find the one that marks."""
    relax.backend.DispatchSortScan = MarkedDispatchSortScan


def uninstall_marks() -> None:
    """Restore TVM's own pass."""
    relax.backend.DispatchSortScan = _STOCK


def _left_out(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function, whose body runs once, or never if its last parameter has no elements."""
    root, sizes = function.body, function.params[-1].ty.shape
    symbolic = [size for size in sizes if not isinstance(size, tirx.IntImm)]
    if not symbolic or not isinstance(root, s_tir.SBlockRealize):
        return function
    times = reduce(tirx.min, symbolic, tirx.IntImm(symbolic[0].ty.dtype, 1))
    variable, zero = tirx.Var("run", times.ty.dtype), tirx.IntImm(times.ty.dtype, 0)
    # A condition would say the same, but TVM takes it for one in the kernel.
    body = tirx.For(variable, zero, times, tirx.ForKind.SERIAL, root.block.body)
    return function.with_body(with_body(root, body))
