"""Which values are kept in memory for their next reader, rather than computed anew.

A row for each edge is computed best where it is read: a scatter makes it a part of itself, TVM
fuses it. What is only as long as an index takes little memory, and what has a kernel of its own
anyway is not computed faster where it is read.
"""

from __future__ import annotations

from math import prod
from typing import Any

import tvm_ffi
from tvm import relax, tirx
from tvm.ir import Var
from tvm.sym import Analyzer

from tvm_scatter.lowering.inlined import PRODUCERS
from tvm_scatter.lowering.reads import is_read
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.scatter_call import is_scatter

from .created import is_created

#: A narrow tensor has at most so many elements for each place of its longest axis: the two ends of
#: an edge, the coordinates of a point.
_NARROW = 4
#: What a size that only the data say is taken to be.
_MANY = 1 << 20
_REPEATS = tuple(f"relax.{name}" for name in ("one_hot", "repeat", "tile"))


def is_worth_keeping(value: Any) -> bool:
    """Whether the value of a binding is kept for a reader that otherwise computes it anew."""
    if not isinstance(value.ty, relax.TensorType):
        return not isinstance(value.ty, relax.TupleType) or all(map(_is_narrow, value.ty.fields))
    if is_created(value) or _grows(value):
        return False
    if _is_narrow(value.ty) or is_scatter(value):
        return True
    computed_where_read = operator_of(value) in PRODUCERS or is_read(value)
    return "float" not in str(value.ty.dtype) and not computed_where_read


def _is_narrow(type_: Any) -> bool:
    if not isinstance(type_, relax.TensorType):
        return False
    sizes = _sizes(type_)
    if sizes is None:
        return bool(type_.ndim == 1)
    return prod(sizes) <= _NARROW * max(sizes, default=1)


def _grows(value: Any) -> bool:
    """Whether a call reads far fewer elements than it writes."""
    if operator_of(value) not in (*PRODUCERS, *_REPEATS):
        return False
    read = [_sizes(each.ty) for each in value.args if isinstance(each.ty, relax.TensorType)]
    made = _sizes(value.ty)
    known = [prod(each) for each in read if each is not None]
    return made is not None and len(known) == len(read) and 2 * sum(known) <= prod(made)


def _sizes(type_: relax.TensorType) -> list[int] | None:
    """The sizes of a tensor, with a large number for each that only the data say."""
    sizes = None if type_.shape is None else getattr(type_.shape, "values", None)
    return None if sizes is None else [_number(size) for size in sizes]


def _number(size: Any) -> int:
    if isinstance(size, int | tirx.IntImm):
        return int(size)
    many = tvm_ffi.structural_map(size, (Var, lambda _: tirx.IntImm("int64", _MANY)))
    number = Analyzer().simplify(many)
    return int(number) if isinstance(number, tirx.IntImm) else _MANY
