"""The ``FLegalize`` of views and of new tensors, where TVM's own fails.

TVM makes reshapes of views once they are legalized. In the shape of a reshape a zero stands for the
size that there was. So a view with a size of zero got another shape, or an error.
TVM also makes constants of new tensors, and cannot load a program whose last constant is empty.

A reshape of symbolic sizes divides each place by them, unless TVM can prove that both shapes have
as many elements. LLVM may not end with such a function. So it is left to the run time as a view.
So is a reshape of one of several results of a function that is fused with nothing. TVM fuses it
with the choice of the result, and then no longer sees that it is a view: it copies the result.
"""

from __future__ import annotations

from math import prod

from tvm import relax, tirx

from tvm_scatter.ops.called import CALL_TIR, operator_of
from tvm_scatter.ops.shapes import no_elements, same_size

from .fusion_patterns import BROADCAST, OPAQUE, fusion_pattern
from .legalizations import put_in_front, stock

_RESHAPE = "relax.reshape"
_VIEWS = tuple(
    f"relax.{name}"
    for name in ("broadcast_to", "expand_dims", "flatten", "permute_dims", "squeeze")
)
_NEW = tuple(f"relax.{name}{like}" for name in ("zeros", "ones", "full") for like in ("", "_like"))


def install_legalizations() -> None:
    """Put the function in front of TVM's. Calling it again changes nothing."""
    put_in_front((_RESHAPE, *_VIEWS, *_NEW), legalize_view)


def legalize_view(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Emit a tensor; where it has no elements, an allocation."""
    shape = call.ty.shape
    if isinstance(shape, relax.ShapeExpr) and any(map(_is_zero, shape.values)):
        return no_elements(call.ty)
    if call.op.name == _RESHAPE and (
        _is_field(bb, call.args[0]) or not _has_as_many_elements(call)
    ):
        return call
    return stock[call.op.name](bb, call)


def _is_field(bb: relax.BlockBuilder, tensor: relax.Expr) -> bool:
    """Whether a tensor is one of the results of a function that is fused with nothing."""
    field = _made(bb, tensor)
    call = _made(bb, field.tuple_value) if isinstance(field, relax.TupleGetItem) else None
    if call is None or operator_of(call) != CALL_TIR:
        return False
    return fusion_pattern(bb.get()[call.args[0]], BROADCAST) == OPAQUE


def _made(bb: relax.BlockBuilder, value: relax.Expr) -> relax.Expr | None:
    """What a variable is bound to."""
    return bb.lookup_binding(value) if isinstance(value, relax.Var) else value


def _is_zero(size: tirx.PrimExpr) -> bool:
    return isinstance(size, tirx.IntImm) and int(size) == 0


def _has_as_many_elements(call: relax.Call) -> bool:
    """Whether this is proved of shapes that are known."""
    shapes = [each.ty.shape for each in (call.args[0], call)]
    if not all(isinstance(shape, relax.ShapeExpr) for shape in shapes):
        return True
    before, after = (prod(shape.values, start=tirx.IntImm("int64", 1)) for shape in shapes)
    return same_size(before, after)
