"""The greatest and least values of symbolic sizes, where an importer knows them.

The number of true entries of a mask is at most that of all its entries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import tvm_ffi
from tvm import relax, tirx
from tvm.ir import Var
from tvm.sym import Analyzer

#: The attributes of a function in which an importer says so, by the names of sizes.
BOUNDS = "tir_var_upper_bound"
_LEAST = "tir_var_lower_bound"
#: PyTorch's name of a size that depends on values. A variable begins with the operator that it
#: comes from.
_OF_VALUES = re.compile(r".*_(u\d+)")


def greatest_sizes(function: relax.Function) -> Mapping[str, int]:
    """The greatest values of a function's sizes, by their names."""
    return _bounds(function, BOUNDS)


def least_sizes(function: relax.Function) -> Mapping[str, int]:
    """The least values of a function's sizes, by their names."""
    return _bounds(function, _LEAST)


def _bounds(function: relax.Function, attribute: str) -> Mapping[str, int]:
    bounds = (function.attrs or {}).get(attribute, {})
    return {str(name): int(value) for name, value in bounds.items()}


def greatest(size: Any, most: Mapping[str, int]) -> int | None:
    """A size where those that it is computed from have their greatest values, if these are known.

    Sizes grow with what they are computed from.
    """

    def known(each: Var) -> Any:
        named = _OF_VALUES.fullmatch(each.name)
        name = each.name if named is None else named[1]
        return tirx.IntImm("int64", most[name]) if name in most else each

    found = Analyzer().simplify(tvm_ffi.structural_map(size, (Var, known)))
    return int(found) if isinstance(found, tirx.IntImm) else None
