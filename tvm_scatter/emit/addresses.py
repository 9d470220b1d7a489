"""Where tensors begin, as numbers. TVM has no such cast, so an address is stored and loaded."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import Var
from tvm.tirx.script import builder as T

#: The field of a packed argument that holds its pointer or number: ``kTVMFFIAnyUnionValue`` in
#: TVM's C++.
_UNION = 15


def emit_address(tensor: Any) -> Any:
    """The address of a tensor, as an integer, in code that is being emitted for a host."""
    lines, address = address_of(tensor)
    for line in lines:
        T.add_to_parent(line)
    return address


def address_of(tensor: Any) -> tuple[list[tirx.Stmt], Any]:
    """Statements for a host, and the address of a tensor behind them."""
    argument = Var("argument", "handle")
    place = tirx.call_intrin("handle", "tirx.tvm_stack_alloca", "tvm_ffi_any", 1)
    stored = tirx.call_intrin("int32", "tirx.tvm_struct_set", argument, 0, _UNION, tensor.data)
    address = tirx.call_intrin("int64", "tirx.tvm_struct_get", argument, 0, _UNION)
    return [tirx.Bind(argument, place), tirx.Evaluate(stored)], address
