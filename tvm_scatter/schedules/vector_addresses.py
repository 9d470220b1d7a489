"""Tensors of which kernels read vectors without asking where they begin.

TVM's schedules of products do: TVM takes all tensors for its own, which begin at multiples of 64
bytes. A caller's may begin anywhere, and the GPU would abort the kernel and all that follow.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import StringImm, TensorLoad, Var
from tvm.sym import Analyzer
from tvm.tirx.buffer import is_buffer_var

from tvm_scatter.emit.addresses import address_of
from tvm_scatter.emit.tensors import element_bytes
from tvm_scatter.selection.backend import backend_of

from .gpu.accesses import asks_where_tensors_begin
from .replaced_pass import ReplacedPass


def checked_addresses(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function, which ends with an error where its kernel would read vectors from between them.

    Parameters
    ----------
    function : PrimFunc
        One of a GPU, whose loops over vectors are vectors already, and whose host part is not apart
        yet. It is returned as it is if its kernel asks itself.
    """
    lines: list[tirx.Stmt] = []
    for at, bytes in sorted(vector_bytes(function).items()):
        lines += _expected(function, at, bytes)
    if not lines:
        return function
    return function.with_body(tirx.SeqStmt([*lines, function.body]))


def vector_bytes(function: tirx.PrimFunc) -> dict[int, int]:
    """By the number of a parameter, the bytes of the longest vector that is accessed in it.

    Of an access to neighbours TVM makes a vector if it can prove that the first is at a multiple of
    as many elements.
    """
    if asks_where_tensors_begin(function):
        return {}
    found: dict[int, int] = {}
    #: The parameters, and what is declared to be in their memory.
    numbers = {each: at for at, each in enumerate(function.params) if is_buffer_var(each)}
    analyzer = Analyzer()

    def declare(node: tirx.DeclBuffer) -> None:
        [whole] = getattr(node.data, "args", ()) or [None]
        if whole in numbers:
            numbers[node.buffer] = numbers[whole]

    def access(tensor: Var, indices: Any) -> None:
        index = indices[-1]
        if tensor not in numbers or not isinstance(index, tirx.Ramp) or not _is_one(index.stride):
            return
        lanes = int(index.lanes)
        first = analyzer.modular_set(index.base)
        if first.coeff % lanes or first.base % lanes:
            return
        at = numbers[tensor]
        found[at] = max(found.get(at, 0), lanes * element_bytes(tensor))

    tvm_ffi.structural_walk(
        function.body,
        [
            (tirx.DeclBuffer, declare),
            (TensorLoad, lambda node: access(node.source, node.indices)),
            (tirx.BufferStore, lambda node: access(node.buffer, node.indices)),
        ],
    )
    return found


def _is_one(stride: Any) -> bool:
    return isinstance(stride, tirx.IntImm) and int(stride) == 1


def _expected(function: tirx.PrimFunc, at: int, bytes: int) -> list[tirx.Stmt]:
    name = str(function.attrs["global_symbol"]) if "global_symbol" in function.attrs else "a kernel"
    message = (
        f"{name}: argument {at} must begin at a multiple of {bytes} bytes, by which the kernel "
        "reads it; pass a copy, such as x.clone()"
    )
    lines, address = address_of(function.params[at])
    begins = tirx.floormod(address, tirx.const(bytes, "int64")) == tirx.const(0, "int64")
    return [*lines, tirx.AssertStmt(begins, StringImm("ValueError"), [StringImm(message)])]


def _checked(stock: tvm.transform.Pass) -> tvm.transform.Pass:
    """TVM's pass, and the checks of functions of GPUs."""

    def run(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        mod = stock(mod)
        for name, function in mod.functions_items():
            if isinstance(function, tirx.PrimFunc) and _is_of_gpu(function):
                mod[name] = checked_addresses(function)
        return mod

    return tvm.transform.module_pass(run, opt_level=0, name="UnrollLoop")


def _is_of_gpu(function: tirx.PrimFunc) -> bool:
    attrs = function.attrs
    return attrs is not None and "target" in attrs and backend_of(attrs["target"]).is_gpu


#: TVM's pass by which vectors are there, and the one with checks behind it.
ADDRESS_CHECKS = ReplacedPass("UnrollLoop", _checked)
