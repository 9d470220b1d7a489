"""Tensors of a caller, which may begin at any element in the memory of a CPU.

TVM takes parameters for tensors that it has allocated, at multiples of 64 bytes, and reads vectors
by instructions that end the process where that is not so. PyTorch passes views of rows.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import Var
from tvm.tirx.buffer import is_buffer_var

from tvm_scatter.emit.tensors import element_bytes, like
from tvm_scatter.ops.called import operator_of

_ALLOCATES = "relax.vm.alloc_tensor"


def AnyAddress() -> tvm.transform.Pass:
    """The pass, for modules in which TVM has written what is allocated.

    Functions suppose no more of what they may get from a caller than where its elements begin.
    """

    def change(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        result = mod.clone()
        for name, places in _anywhere(mod).items():
            result.update_func(name, with_any_address(mod[name], places))
        return result

    return tvm.transform.module_pass(change, opt_level=0, name="AnyAddress")


def with_any_address(function: tirx.PrimFunc, places: set[int]) -> tirx.PrimFunc:
    """The function, some parameters of which may begin at any element.

    Parameters
    ----------
    places : set of int
        The numbers of these parameters.
    """
    tensors = [function.params[at] for at in places if is_buffer_var(function.params[at])]
    instead = {
        each: like(each, data_alignment=element_bytes(each))
        for each in tensors
        if each.ty.data_alignment > element_bytes(each)
    }
    if not instead:
        return function
    return tvm_ffi.structural_map(function, (Var, lambda each: instead.get(each, each)))


def _anywhere(mod: tvm.IRModule) -> dict[Any, set[int]]:
    """By function, the parameters that are given what TVM has not allocated in the same place."""
    found: dict[Any, set[int]] = defaultdict(set)
    for function in mod.functions.values():
        if not isinstance(function, relax.Function):
            continue
        values = relax.analysis.get_var2val(function)
        calls: list[relax.Call] = []
        tvm_ffi.structural_walk(function, (relax.Call, calls.append))
        for call in calls:
            if isinstance(call.op, tvm.ir.GlobalVar) and isinstance(mod[call.op], tirx.PrimFunc):
                found[call.op].update(
                    at for at, each in enumerate(call.args) if not _is_allocated(each, values)
                )
    return found


def _is_allocated(argument: Any, values: Any) -> bool:
    if isinstance(argument, tvm.ir.GenericConst):
        return True
    return isinstance(argument, relax.Var) and operator_of(values.get(argument)) == _ALLOCATES
