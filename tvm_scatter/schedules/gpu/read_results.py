"""Where an expression reads the results of a reduction, and the expression of one such result."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi

from tvm_scatter.emit.computed_updates import loads_of


def place_of_result(value: Any, results: Any) -> list[Any] | None:
    """Where an expression reads the results; ``None`` if it reads several of them, or none."""
    places = [load.indices for load in loads_of(value) if load.source.same_as(results)]
    if not places or not all(tvm_ffi.structural_equal(each, places[0]) for each in places):
        return None
    return list(places[0])


def with_result(value: Any, results: Any, result: Any) -> Any:
    """The expression with another one for what it reads of the results."""

    def own(load: Any) -> Any:
        return result if load.source.same_as(results) else load

    return tvm_ffi.structural_map(value, (tvm.ir.TensorLoad, own))
