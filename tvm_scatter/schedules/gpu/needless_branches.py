"""Branches that nothing needs: what is read on their sides may be read in any case.

A rectifier compares an element and chooses between it and zero. TVM writes that as a branch, which
would keep neighbours from being read together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.sym import Analyzer

from tvm_scatter.emit.computed_updates import BRANCH, function_name, parts_of
from tvm_scatter.emit.expressions import all_of, is_by_index

#: A load, and the conditions of the branches that it stands in.
_Guarded = tuple[Any, tuple[Any, ...]]


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

    def is_there(load: Any, guards: tuple[Any, ...]) -> bool:
        if is_by_index(load):
            return False
        inside = (
            tirx.all(index >= 0, index < size)
            for index, size in zip(load.indices, load.source.shape, strict=True)
        )
        known = [each for each in guards if not all_of(each, tvm.ir.TensorLoad)]
        if not known:
            return all(map(analyzer.can_prove, inside))
        with analyzer.constraint_scope(tirx.all(*known)):
            return all(map(analyzer.can_prove, inside))

    def choice(call: Any) -> Any:
        if function_name(call) != BRANCH:
            return call
        condition, yes, no = call.args
        # What the condition reads is read in any case.
        read = list(_guarded_loads(condition))
        for load in (*_guarded_loads(yes), *_guarded_loads(no)):
            is_read = any(tvm_ffi.structural_equal(load, each) for each in read)
            if not is_read and not is_there(*load):
                return call
        return tirx.Select(condition, yes, no)

    return tvm_ffi.structural_map(value, (tvm.ir.Call, choice))


def _guarded_loads(expression: Any, guards: tuple[Any, ...] = ()) -> Iterator[_Guarded]:
    """The loads in an expression."""
    if isinstance(expression, tvm.ir.TensorLoad):
        yield expression, guards
    parts = parts_of(expression)
    if isinstance(expression, tvm.ir.Call) and function_name(expression) == BRANCH:
        condition, yes, no = parts
        yield from _guarded_loads(condition, guards)
        yield from _guarded_loads(yes, (*guards, condition))
        yield from _guarded_loads(no, (*guards, tirx.Not(condition)))
        return
    for part in parts:
        yield from _guarded_loads(part, guards)
