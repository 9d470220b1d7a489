"""The ``FLegalize`` of operators that read by index: the bounds policies of the scatters."""

from __future__ import annotations

from tvm import relax, te

from tvm_scatter.bounds.device_check import check_beside
from tvm_scatter.bounds.host_check import check_on_host
from tvm_scatter.emit.index_check import DeviceCheck, IndexCheck
from tvm_scatter.ops.read_forms import read
from tvm_scatter.ops.read_ops import NAMES as OUR_OPERATORS
from tvm_scatter.ops.shapes import no_elements
from tvm_scatter.options import current_options
from tvm_scatter.selection.backend import backend_of

from .fused_reads import IS_READ, pattern_of
from .legalizations import put_in_front, stock
from .make import check_alone
from .operands import Made
from .plan_read import ReadPlan, plan_read
from .reads import STOCK_OPERATORS
from .target import target_of


def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Emit a read that follows the bounds policy.

    A bad index is an error under ``raise``, and reads a zero under ``drop``. Under ``trust``
    indices are not checked.
    """
    target = target_of(call.args[0])
    plan = plan_read(call, target, current_options())
    if plan is None:
        return stock[call.op.name](bb, call)
    check = Made(bb).index_check(plan.read.check)
    device_check = backend_of(target).device_check
    if plan.read.is_empty():
        # TVM's schedule for GPUs writes an element even if the result is empty.
        empty = no_elements(call.ty)
        return empty if plan.check is None else check_alone(bb, check, device_check, empty)
    return _checked(bb, plan, check, device_check, call.ty)


def install_legalizations() -> None:
    """Put :func:`legalize` in front of TVM's functions. Calling it again changes nothing."""
    put_in_front(STOCK_OPERATORS, legalize)
    put_in_front(OUR_OPERATORS, legalize, ours=True)


def _checked(
    bb: relax.BlockBuilder,
    plan: ReadPlan,
    check: IndexCheck,
    device_check: DeviceCheck | None,
    result: relax.TensorType,
) -> relax.Expr:
    """Emit a read and its check, in the order that the kind of check needs."""
    if plan.check is None:
        return _compute(bb, plan, check, result)
    if device_check is None:
        return _compute(bb, plan, check, result, check_on_host(bb, check))
    return check_beside(bb, check, device_check, lambda _: _compute(bb, plan, check, result))


def _compute(
    bb: relax.BlockBuilder,
    plan: ReadPlan,
    check: IndexCheck,
    result: relax.TensorType,
    *tokens: relax.Expr,
) -> relax.Expr:
    """Emit the read. TVM computes the tokens before it."""
    form, wrap = plan.read.form, plan.read.has_negative()

    def compute(data: te.Tensor, indices: list[te.Tensor], *_tokens: te.Tensor) -> te.Tensor:
        return read(form, data, indices, wrap, plan.guard)

    name = check.operator if check.operator.isidentifier() else "read"
    # TVM itself takes what an index addresses for opaque, and fuses it with nothing.
    attributes: dict[str, int] = {}
    if plan.fuses:
        attributes = {"op_pattern": pattern_of(bb, check.data, result), IS_READ: 1}
    return bb.call_te(
        compute,
        check.data,
        list(check.indices),
        *tokens,
        primfunc_name_hint=name,
        primfunc_attrs=attributes or None,
    )
