"""Running maxima and running sums of exponentials, which TVM has no scan for.

A scan is computed in steps, each of which doubles how many elements before it an element knows of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.importers.shapes import shape_of
from tvm_scatter.ops.shapes import is_empty

from .call import TorchCall
from .ordering import keys
from .sorting import taken

#: Steps for a dimension whose size is symbolic: enough for 2**31 elements.
_MOST_STEPS = 31


def running_extreme(greatest: bool, call: TorchCall) -> Any:
    """``cummax`` and ``cummin``: values, and the last position of equal ones."""
    data, shape = call["self"], shape_of(call["self"])
    data = call.reshape(data, shape or (1,))
    dim = call.axis(call["dim"], len(shape))
    order = keys(call, data, last=greatest, descending=not greatest)

    def own(order: te.Tensor) -> te.Tensor:
        return te.compute(order.shape, lambda *at: at[dim].astype("int64"), name="own")

    def later(step: int, best: te.Tensor, order: te.Tensor) -> te.Tensor:
        def chosen(*at: Any) -> Any:
            def key(place: Any) -> Any:
                return order(*at[:dim], place, *at[dim + 1 :])

            before = best(*at[:dim], tirx.max(at[dim] - step, 0), *at[dim + 1 :])
            greater = tirx.all(at[dim] >= step, key(before) > key(best(*at)))
            # No selection: it may read what is not chosen, from before the first element.
            return tirx.if_then_else(greater, before, best(*at))

        return te.compute(best.shape, chosen, name="later")

    positions = call.compute(own, order, name="own")
    positions = _doubled(call, later, positions, dim, order)
    values = taken(call, data, positions, dim)
    return call.emit(relax.Tuple([call.reshape(each, shape) for each in (values, positions)]))


def running_log_sum(call: TorchCall) -> Any:
    """``logcumsumexp``."""
    data, shape = call["self"], shape_of(call["self"])
    dtype = str(data.ty.dtype)
    wide = dtype if dtype == "float64" else "float32"
    data = call.cast(call.reshape(data, shape or (1,)), wide)
    dim = call.axis(call["dim"], len(shape))

    def later(step: int, total: te.Tensor) -> te.Tensor:
        def added(*at: Any) -> Any:
            before = total(*at[:dim], tirx.max(at[dim] - step, 0), *at[dim + 1 :])
            return tirx.if_then_else(at[dim] >= step, _log_sum(before, total(*at)), total(*at))

        return te.compute(total.shape, added, name="later")

    return call.reshape(call.cast(_doubled(call, later, data, dim), dtype), shape)


def _doubled(
    call: TorchCall, later: Callable[..., te.Tensor], found: Any, dim: int, *others: Any
) -> Any:
    """Apply steps of 1, 2, 4, ... along a dimension."""
    if is_empty(found):
        return found
    extent = shape_of(found)[dim]
    steps = max(extent - 1, 0).bit_length() if isinstance(extent, int) else _MOST_STEPS
    for i in range(steps):

        def function(*tensors: te.Tensor, step: int = 2**i) -> te.Tensor:
            return later(tirx.IntImm("int64", step), *tensors)

        # Opaque: a fused chain of steps would compute each element again for every later one.
        found = call.bb.emit_te(
            function, found, *others, primfunc_name_hint="later", primfunc_attrs={"op_pattern": 8}
        )
    return found


def _log_sum(left: Any, right: Any) -> Any:
    """The logarithm of the sum of two exponentials, where the greater one may be infinite."""
    greater = tirx.Select(left > right, left, right)
    unknown = tirx.any(tirx.isnan(left), tirx.isnan(right))
    one = tirx.const(1, left.ty)
    total = greater + tirx.log(one + tirx.exp(-tirx.abs(left - right)))
    same = greater + tirx.log(one + one)
    return tirx.Select(unknown, left + right, tirx.Select(left == right, same, total))
