"""The operators of this package in TVMScript, as TVM prints them: ``R.tvm_scatter.index_put(...)``.

TVM prints operands by position and attributes by name. Its parser looks names up in modules.
"""

from __future__ import annotations

import sys
from functools import partial
from inspect import Parameter, Signature
from types import ModuleType, SimpleNamespace
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Op

from tvm_scatter.errors import ScatterError
from tvm_scatter.ops.arguments import checked_axes, checked_axis, checked_ranges, rank_of
from tvm_scatter.ops.compaction import TRUE_POSITIONS
from tvm_scatter.ops.expectations import (
    EXPECT_COUNT,
    EXPECT_INDICES,
    EXPECT_NUMBERS,
    EXPECT_SIZES,
)
from tvm_scatter.ops.grouped_product import GROUPED_PRODUCT
from tvm_scatter.ops.host_numbers import ON_HOST
from tvm_scatter.ops.names import (
    BATCH,
    COPY_RANGES,
    INDEX_PUT,
    SCATTER_ELEMENTS,
    SCATTER_ND,
    SELECT_ROWS,
)
from tvm_scatter.ops.ordering import ORDER
from tvm_scatter.ops.ranges import check_ranges
from tvm_scatter.ops.read_ops import GATHER_ELEMENTS, GATHER_ND, INDEX
from tvm_scatter.ops.scatter_call import REQUESTS
from tvm_scatter.ops.suppression import KEPT_BOXES
from tvm_scatter.problem.reductions import canonical_reduction

from .on_import import forget, when_imported

#: The parser reads text with the names of the first, and decorated Python with the second's.
_MODULES = ("tvm.relax.script.parser", "tvm.relax.script")
_NAMESPACE = "tvm_scatter"
_PREFIX = f"relax.{_NAMESPACE}."
_ABSENT = object()
#: What TVM prints of numbers that Python has no literal for.
_SPECIAL = ("inf", "-inf", "nan")


def _signature(operands: str, attributes: str, **optional: Any) -> Signature:
    """Operands by position and attributes by name; those with a default may be left out."""
    places = operands.split()
    names = [
        name for name in {**dict.fromkeys(attributes.split()), **optional} if name not in places
    ]

    def parameter(name: str, kind: Any) -> Parameter:
        return Parameter(name, kind, default=optional.get(name, Parameter.empty))

    return Signature(
        [parameter(name, Parameter.POSITIONAL_ONLY) for name in places]
        + [parameter(name, Parameter.KEYWORD_ONLY) for name in names]
    )


_PROVED = {"in_range": False, "checked": False}
_ASCENDING = {"ascending": False, "offsets_only": False}
_SCATTER = {"earlier": _ABSENT, **REQUESTS}
#: Where updates may be ordered, their ordering stands in front of what must be computed earlier.
_ORDERED = {
    **{"ordering": _ABSENT, "order_alone": _ABSENT},
    # The function of updates that the scatter computes.
    **{"producer": _ABSENT},
    **_SCATTER,
}
_SIGNATURES = {
    SCATTER_ELEMENTS: _signature("data index updates ordering earlier", "axis", **_ORDERED),
    INDEX_PUT: _signature("data indices updates ordering earlier", "axes", **_ORDERED),
    SCATTER_ND: _signature("data indices updates ordering earlier", "", **_ORDERED),
    COPY_RANGES: _signature("data sources earlier", "axis ranges", **_SCATTER),
    BATCH: _signature(
        "operands earlier", "scatter scatters", axis=_ABSENT, axes=_ABSENT, **REQUESTS
    ),
    SELECT_ROWS: _signature("data winners sources", ""),
    INDEX: _signature("data indices", "axes wrap_negative operator", **_PROVED),
    GATHER_ELEMENTS: _signature("data index", "axis wrap_negative operator", **_PROVED),
    GATHER_ND: _signature("data indices", "batch_dims wrap_negative operator", **_PROVED),
    ON_HOST: _signature("numbers", ""),
    ORDER: _signature("index extent", "wrap_negative operator", **_PROVED, **_ASCENDING),
    TRUE_POSITIONS: _signature("mask", ""),
    GROUPED_PRODUCT: _signature("rows matrices ends", "operator"),
    KEPT_BOXES: _signature("boxes order candidates", "overlap most"),
    EXPECT_SIZES: _signature("tensor found wanted shape", "what operator"),
    EXPECT_COUNT: _signature("total entries", "rule what operator"),
    EXPECT_INDICES: _signature("data indices", "read attrs"),
    EXPECT_NUMBERS: _signature("tensor numbers limit", "rule what operator"),
}


def install_tvmscript() -> None:
    """Add the operators to TVM's parser, as soon as it is imported."""
    for name in _MODULES:
        when_imported(name, _extend)


def uninstall_tvmscript() -> None:
    """Restore TVM's parser."""
    for name in _MODULES:
        forget(name)
        if name in sys.modules:
            vars(sys.modules[name]).pop(_NAMESPACE, None)
            vars(sys.modules[name]).update(const=relax.const)


def _extend(module: ModuleType) -> None:
    operators = {name.removeprefix(_PREFIX): partial(_call, name) for name in _SIGNATURES}
    setattr(module, _NAMESPACE, SimpleNamespace(**operators))
    vars(module).update(const=_constant)


def _constant(value: Any, dtype: str | None = None) -> relax.Expr:
    """``R.const``, which TVM prints of infinity as ``R.const("inf", ...)`` and cannot read."""
    return relax.const(
        float(value) if isinstance(value, str) and value in _SPECIAL else value, dtype
    )


def _call(name: str, *operands: Any, **attributes: Any) -> relax.Call:
    """The call that a line of TVMScript says."""
    short = name.removeprefix(_PREFIX)
    try:
        bound = _SIGNATURES[name].bind(*operands, **attributes)
    except TypeError as error:
        raise ScatterError(f"R.{_NAMESPACE}.{short}: {error}.") from None
    bound.apply_defaults()
    given = {key: value for key, value in bound.kwargs.items() if value is not _ABSENT}
    if "reduction" in given:
        given["operator"] = given["operator"] or short
        given["reduction"] = canonical_reduction(given["reduction"], given["operator"])
    if isinstance(given.get("attrs"), dict):
        # Of the read whose indices are checked.
        given["attrs"] = tvm.ir.make_node("ir.DictAttrs", **given["attrs"])
    tensors = [relax.utils.convert_to_expr(each) for each in operands]
    if name != BATCH:
        _check_places(str(given.get("operator", short)), tensors, given)
    attrs = tvm.ir.make_node("ir.DictAttrs", **given) if given else None
    return relax.Call(Op.get(name), tensors, attrs=attrs)


def _check_ranges(operator: str, tensors: list[Any], given: dict[str, Any]) -> None:
    """Let the ranges be checked, which are four numbers each, one after the other."""
    numbers = [int(number) for number in given["ranges"]]
    if len(numbers) % 4:
        raise ScatterError(
            f"{operator}: ranges must be 4 numbers each, but there are {len(numbers)}."
        )
    ranges = checked_ranges(operator, [numbers[at : at + 4] for at in range(0, len(numbers), 4)])
    check_ranges(operator, tensors[0], tensors[1].fields, ranges, given["axis"])


def _check_places(operator: str, tensors: list[Any], given: dict[str, Any]) -> None:
    """Let the axes be checked, as the constructors of the operators do."""
    if "axis" in given:
        given["axis"] = checked_axis(operator, given["axis"], max(rank_of(operator, tensors[0]), 1))
    if "axes" in given:
        # The tuple of index tensors may also be a variable.
        tuple_ = tensors[1] if isinstance(tensors[1], relax.Tuple) else tensors[1].ty
        count = len(getattr(tuple_, "fields", [tuple_]))
        rank = rank_of(operator, tensors[0])
        given["axes"] = checked_axes(operator, given["axes"], rank, count)
    if "ranges" in given:
        _check_ranges(operator, tensors, given)
