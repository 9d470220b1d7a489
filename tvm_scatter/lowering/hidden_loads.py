"""Lets TVM look at an expression in which elements of tensors are numbers like any other."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvm_scatter.emit.computed_updates import function_name, substitute


class HiddenLoads:
    """Variables that stand for elements of placeholders, which TVM cannot compare."""

    def __init__(self) -> None:
        self._loads: dict[Any, Any] = {}
        self._known: dict[Any, Any] = {}

    def hidden(self, expression: Any) -> Any:
        """The expression with a variable for each different element."""
        return tvm_ffi.structural_map(expression, (tvm.ir.Call, self._hide), order="pre")

    def shown(self, expression: Any) -> Any:
        """An expression of such variables with the elements in their place."""
        return substitute(expression, self._loads)

    def _hide(self, call: Any) -> Any:
        if function_name(call) != "tensor_load":
            return call
        source, *place = call.args
        key = source.op.name, *(tvm_ffi.StructuralKey(self.hidden(each)) for each in place)
        if key not in self._known:
            number = tirx.Var(f"loaded{len(self._known)}", call.ty)
            self._known[key], self._loads[number] = number, call
        return self._known[key]
