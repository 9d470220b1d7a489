"""Expressions of floats, in forms that TVM does not simplify as it would those of real numbers.

It takes ``x + y - y`` for ``x``, ``x - x`` for 0 and ``x + z != y + z`` for ``x != y``, although
sums are rounded, and numbers may be infinite or none. It does so where operators are made one
expression, not where they stand apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm_ffi
from tvm import tirx

from tvm_scatter.emit.expressions import is_false
from tvm_scatter.problem.reductions import FLOATS

from .hidden_loads import HiddenLoads


def as_floats(expression: Any) -> Any:
    """An expression of placeholders, whose value is that of its operators one after the other."""
    loads = HiddenLoads()
    hidden = loads.hidden(expression)
    kept = tvm_ffi.structural_map(hidden, [(tirx.Sub, _difference), (tirx.NE, _unequal)])
    return loads.shown(kept)


def _difference(node: Any) -> Any:
    """The same number by a sum."""
    if not _have_in_common(node.a, node.b):
        return node
    # The negative of a float is exact.
    return tirx.Add(node.a, tirx.Mul(node.b, tirx.const(-1.0, str(node.ty.dtype))))


def _unequal(node: Any) -> Any:
    """The same truth by orders."""
    if not _have_in_common(node.a, node.b):
        return node
    return is_false(tirx.And(tirx.LE(node.a, node.b), tirx.LE(node.b, node.a)))


def _have_in_common(left: Any, right: Any) -> bool:
    """Whether TVM might see a term of floats on both sides."""
    if str(left.ty.dtype) not in FLOATS:
        return False
    terms = {tvm_ffi.StructuralKey(each) for each in _terms(left)}
    return any(tvm_ffi.StructuralKey(each) in terms for each in _terms(right))


def _terms(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, tirx.Add | tirx.Sub):
        yield from _terms(value.a)
        yield from _terms(value.b)
