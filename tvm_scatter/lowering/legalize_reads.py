"""FLegalize for what reads by index: the same policy for bad indices as the scatters have."""

from __future__ import annotations

from tvm import relax, te

from tvm_scatter.bounds.device_check import check_beside
from tvm_scatter.bounds.host_check import check_on_host
from tvm_scatter.ops.read_forms import read
from tvm_scatter.ops.read_ops import NAMES as OUR_OPERATORS
from tvm_scatter.ops.shapes import no_elements
from tvm_scatter.options import current_options

from .legalizations import put_in_front, stock
from .legalize import strategy_of
from .make import check_alone
from .reads import STOCK_OPERATORS, Read, read_of


def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Replace a read by one that no bad index leads out of its data, unless that is not looked for.

    Under ``raise`` a bad index is an error, under ``drop`` it reads a zero.
    """
    options, ours = current_options(), call.op.name in OUR_OPERATORS
    _, strategy = strategy_of(call.args[0])
    if not ours and (strategy is None or not options.enabled):
        return stock[call.op.name](bb, call)
    reading = read_of(bb, call)
    if reading is None:
        return stock[call.op.name](bb, call)
    bounds = "drop" if strategy is None else strategy.backend.bounds_under(options)
    if reading.is_empty():
        # TVM's schedule for GPUs writes even where there is nothing to write.
        empty = no_elements(call.ty)
        if strategy is None or bounds != "raise" or reading.is_in_range():
            return empty
        return check_alone(bb, reading.check, strategy.device_check, empty)
    if bounds == "trust" or reading.is_in_range():
        return _compute(bb, reading, guard=False)
    if bounds == "drop" or strategy is None:
        return _compute(bb, reading, guard=True)
    if strategy.device_check is None:
        return _compute(bb, reading, False, check_on_host(bb, reading.check))
    return check_beside(
        bb, reading.check, strategy.device_check, lambda _: _compute(bb, reading, guard=True)
    )


def install_legalizations() -> None:
    """Put the policy in front of TVM's legalization; harmless when it is there already."""
    put_in_front(STOCK_OPERATORS, legalize)
    put_in_front(OUR_OPERATORS, legalize, ours=True)


def _compute(bb: relax.BlockBuilder, reading: Read, guard: bool, *tokens: relax.Expr) -> relax.Expr:
    """Emit the read; it waits for the tokens."""
    check, wrap = reading.check, reading.has_negative()

    def compute(data: te.Tensor, indices: list[te.Tensor], *_tokens: te.Tensor) -> te.Tensor:
        return read(reading.form, data, indices, wrap, guard)

    name = check.operator if check.operator.isidentifier() else "read"
    return bb.call_te(compute, check.data, list(check.indices), *tokens, primfunc_name_hint=name)
