"""Branches that nothing needs: what is read on their sides may be read in any case.

A rectifier compares an element and chooses between it and zero. TVM writes that as a branch, which
would keep neighbours from being read together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.sym import Analyzer

from tvm_scatter.emit.computed_updates import BRANCH, function_name, loads_of
from tvm_scatter.emit.expressions import is_by_index


def without_needless_branches(value: Any, sizes: Mapping[Any, Any]) -> Any:
    """The expression, in which a branch is a choice where all that it reads is there.

    Parameters
    ----------
    sizes : mapping
        The number of values of each coordinate.
    """
    analyzer = Analyzer()
    for axis, size in sizes.items():
        analyzer.bind(axis, tvm.ir.Range(0, size))

    def is_there(load: Any) -> bool:
        return not is_by_index(load) and all(
            analyzer.can_prove(tirx.all(index >= 0, index < size))
            for index, size in zip(load.indices, load.source.shape, strict=True)
        )

    def choice(call: Any) -> Any:
        if function_name(call) != BRANCH:
            return call
        condition, yes, no = call.args
        if not all(is_there(load) for side in (yes, no) for load in loads_of(side)):
            return call
        return tirx.Select(condition, yes, no)

    return tvm_ffi.structural_map(value, (tvm.ir.Call, choice))
