"""The ``FLegalize`` of views and of new tensors that are known to have no elements.

TVM makes reshapes of views once they are legalized. In the shape of a reshape a zero stands for the
size that there was. So a view with a size of zero got another shape, or an error.
TVM also makes constants of new tensors, and cannot load a program whose last constant is empty.
"""

from __future__ import annotations

from tvm import relax, tirx

from tvm_scatter.ops.shapes import no_elements

from .legalizations import put_in_front, stock

_VIEWS = tuple(
    f"relax.{name}"
    for name in ("broadcast_to", "expand_dims", "flatten", "permute_dims", "reshape", "squeeze")
)
_NEW = ("relax.zeros", "relax.ones", "relax.full")


def install_legalizations() -> None:
    """Put the function in front of TVM's. Calling it again changes nothing."""
    put_in_front((*_VIEWS, *_NEW), legalize_empty)


def legalize_empty(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Emit a tensor; where it has no elements, an allocation."""
    shape = call.ty.shape
    if isinstance(shape, relax.ShapeExpr) and any(map(_is_zero, shape.values)):
        return no_elements(call.ty)
    return stock[call.op.name](bb, call)


def _is_zero(size: tirx.PrimExpr) -> bool:
    return isinstance(size, tirx.IntImm) and int(size) == 0
