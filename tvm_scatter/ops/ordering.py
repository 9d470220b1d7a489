"""The Relax operator that orders updates by their destinations.

The order depends on the index alone. So it can be made once and given to every scatter by that
index.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax, tirx

from tvm_scatter.emit.ordering import DTYPE, LIMIT
from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.reductions import check_index_dtype
from tvm_scatter.problem.symbolic_size import SymbolicSize

from .arguments import flag, need_tensor
from .own_operators import call_of, register_operator
from .shapes import static_shape

ORDER = "relax.tvm_scatter.order"


def order(
    index: relax.Expr,
    extent: Any,
    *,
    wrap_negative: bool = True,
    in_range: bool = False,
    checked: bool = False,
    ascending: bool = False,
    offsets_only: bool = False,
    operator: str = "order",
) -> relax.Expr:
    """Order updates by their destinations, once for all scatters by one index.

    With ``ordering = builder.emit(order(index, extent))``, ``index_put(data, [index], values,
    ordering=ordering)`` makes none itself.

    Parameters
    ----------
    index : relax.Expr
        Integers of any shape, of K elements in all: the destination of each update.
    extent : int or tvm.tirx.Expr
        The number of destinations.
    wrap_negative : bool
        Whether negative indices count from the end.
    in_range : bool
        Whether all indices are proved to be in range, so that none need be checked.
    checked : bool
        Whether :func:`~tvm_scatter.ops.expectations.expect_indices` has returned the index, so that
        a bad one is reported without a check of its own.
    ascending : bool
        Whether it is proved that indices ascend and none is negative, so that nothing is sorted.
    offsets_only : bool
        Whether the offsets are all that is returned. They are all of the order if indices ascend.
    operator : str
        The name of the operator in errors.

    Returns
    -------
    ordering : relax.Expr
        A tuple of two tensors, equal on every run. The permutation: int32 of shape (K,), the
        numbers of the updates, by destination and among those of one destination in their own
        order. The offsets: int32 of shape (extent + 1,), where each destination's updates begin in
        the permutation, and last where those of the last one end. Updates with a bad index stand
        behind that, unless the policy is to raise an error.

    Raises
    ------
    ScatterError
        If the index is no tensor of integers, the extent is negative, there are 2**31 - 1 updates
        or destinations or more, or a flag is neither true nor false.
    """
    need_tensor(operator, "index", index)
    typed = isinstance(index.ty, relax.TensorType)
    if typed:
        check_index_dtype(operator, str(index.ty.dtype))
    if isinstance(extent, bool) or not isinstance(extent, int | tvm.ir.Expr):
        raise ScatterError(f"{operator}: extent={extent!r} must be a number or a symbolic size.")
    if isinstance(extent, int | tirx.IntImm):
        _check_number(operator, "destinations", int(extent))
    sizes = static_shape(index) if typed else None
    if sizes is not None and all(isinstance(size, int | tirx.IntImm) for size in sizes):
        _check_number(operator, "updates", _product(sizes))
    flags = {"wrap_negative": wrap_negative, "in_range": in_range, "checked": checked}
    flags |= {"ascending": ascending, "offsets_only": offsets_only}
    attrs = {name: flag(operator, name, value) for name, value in flags.items()}
    return call_of(ORDER, [index, relax.ShapeExpr([extent])], {**attrs, "operator": operator})


def emitted_order(
    emit: Callable[[Any], Any], index: relax.Expr, extent: Any, **options: Any
) -> tuple[Any, ...]:
    """What an :func:`order` returns, made by ``emit``."""
    made = emit(order(index, extent, **options))
    return tuple(emit(relax.TupleGetItem(made, at)) for at in range(len(made.ty.fields)))


def check_sizes(operator: str, updates: SymbolicSize, destinations: SymbolicSize) -> None:
    """Raise if there are too many updates or destinations, as far as their numbers are known.

    Raises
    ------
    ScatterError
        If a number is negative or too large.
    """
    for what, size in (("updates", updates), ("destinations", destinations)):
        if size.is_static:
            _check_number(operator, what, size.constant)


def register() -> None:
    """Register the operator with TVM. Calling it again changes nothing."""
    register_operator(ORDER, _infer)


def _check_number(operator: str, what: str, number: int) -> None:
    if not 0 <= number < LIMIT:
        raise ScatterError(
            f"{operator}: an order of {number} {what} cannot be made; there must be at least 0 and "
            f"fewer than {LIMIT}."
        )


def _infer(call: relax.Call, _context: Any) -> Any:
    index, (extent,) = call.args[0], call.args[1].values
    sizes, vdevice = static_shape(index), index.ty.vdevice
    if sizes is None:
        permutation = relax.TensorType(None, DTYPE, vdevice, 1)
    else:
        permutation = relax.TensorType([_product(sizes)], DTYPE, vdevice)
    offsets = relax.TensorType([extent + 1], DTYPE, vdevice)
    return relax.TupleType([offsets] if call.attrs["offsets_only"] else [permutation, offsets])


def _product(sizes: Any) -> Any:
    result: Any = 1
    for size in sizes:
        result = result * (int(size) if isinstance(size, tirx.IntImm) else size)
    return result
