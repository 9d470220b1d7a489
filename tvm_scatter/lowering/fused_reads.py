"""What TVM may fuse with a read by index: the operators behind it, and those in front.

Fused with a read, what its data is computed from is read once for each time that it is read, and
the data itself is never written.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import relax, tirx

from tvm_scatter.ops.called import CALL_TIR, operator_of

from .fusion_patterns import INJECTIVE, ROOT, fusion_pattern
from .row_reductions import has_parallel_axes_alone

#: The attribute of a function that reads by index and may be fused.
IS_READ = "tvm_scatter.read"


def pattern_of(bb: relax.BlockBuilder, data: relax.Expr, result: relax.TensorType) -> int:
    """TVM's number for what a read by index may be fused with."""
    sources = [each for each in _sources(bb, data) if _is_as_large(each.ty, data.ty)]
    if len(sources) < 2:
        return INJECTIVE
    reads, size = _elements(result), _elements(data.ty)
    if reads is None or size is None:
        return ROOT
    fused, apart = len(sources) * reads, (len(sources) + 1) * size + reads
    return INJECTIVE if fused <= apart else ROOT


def _sources(bb: relax.BlockBuilder, value: Any) -> list[Any]:
    """The tensors that a value is computed from, element by element; itself, if by none."""
    found: list[Any] = []
    seen: set[Any] = set()
    waiting = [value]
    while waiting:
        value = waiting.pop()
        # What is read twice has the same sources twice, and twice as many paths lead to each.
        if value in seen:
            continue
        seen.add(value)
        operands = _operands(bb, value)
        if operands is None:
            found.append(value)
        else:
            waiting.extend(operands)
    return found


def _operands(bb: relax.BlockBuilder, value: Any) -> list[Any] | None:
    """What a value is computed from, element by element; ``None`` if it is not."""
    call: Any = bb.lookup_binding(value) if isinstance(value, relax.Var) else None
    if operator_of(call) != CALL_TIR:
        return None
    function, operands = call.args[:2]
    return list(operands.fields) if _computes_elements(bb.get()[function]) else None


def _computes_elements(function: Any) -> bool:
    """Whether a function computes each element of its result by itself."""
    if not isinstance(function, tirx.PrimFunc):
        return False
    if fusion_pattern(function, INJECTIVE) > INJECTIVE:
        return False
    return has_parallel_axes_alone(function)


def _is_as_large(tensor: Any, data: Any) -> bool:
    if not isinstance(tensor, relax.TensorType):
        return False
    one, other = _elements(tensor), _elements(data)
    if one is not None and other is not None:
        return one >= other
    return bool(tensor.ndim >= data.ndim)


def _elements(tensor: Any) -> int | None:
    """The number of elements, if that is known."""
    dims = getattr(tensor.shape, "values", None)
    if dims is None or not all(isinstance(dim, tirx.IntImm) for dim in dims):
        return None
    return prod(map(int, dims))
