"""Headers of device routines, which each kernel brings along, once in a module.

They are a hundred kilobytes, and where sizes are known at run time only, a scatter has some twenty
kernels to choose from.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm.ir import StringImm

from tvm_scatter.emit.device_headers import has_headers, without_headers


def with_headers_once(mod: tvm.IRModule) -> tvm.IRModule:
    """The kernels, of which one brings along what all of them need.

    TVM writes what kernels bring along in front of them, in an order of its own.
    """
    sources: dict[str, None] = {}

    def visit(text: StringImm) -> None:
        if has_headers(text.value):
            sources.setdefault(text.value)

    for function in mod.functions.values():
        tvm_ffi.structural_walk(function, (StringImm, visit))
    if len(sources) < 2:
        return mod
    known: set[str] = set()
    instead = dict.fromkeys(sources, "")
    instead[next(iter(sources))] = "".join(without_headers(each, known) for each in sources)

    def changed(text: StringImm) -> StringImm:
        return StringImm(instead[text.value]) if text.value in instead else text

    functions: dict[Any, Any] = {
        name: tvm_ffi.structural_map(function, (StringImm, changed))
        for name, function in mod.functions.items()
    }
    return tvm.IRModule(functions, attrs=mod.attrs)
