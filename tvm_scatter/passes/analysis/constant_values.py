"""Tensors that are computed from constants alone, which TVM computes while it compiles."""

from __future__ import annotations

from typing import Any

import tvm

from tvm_scatter.ops.called import CALL_TIR, operator_of

from .bindings import Bindings


def computed_from_constants(bindings: Bindings) -> set[Any]:
    """The variables of calls of legalized functions that read constants and nothing else."""
    found: set[Any] = set()
    for binding in bindings:
        if operator_of(binding.value) != CALL_TIR:
            continue
        read = binding.value.args[1].fields
        if read and all(isinstance(each, tvm.ir.GenericConst) or each in found for each in read):
            found.add(binding.var)
    return found
