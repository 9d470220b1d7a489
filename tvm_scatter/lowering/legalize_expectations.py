"""The ``FLegalize`` of the operators that check the rules of front ends at run time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx

from tvm_scatter.bounds.count_check import CountCheck
from tvm_scatter.bounds.number_check import NumberCheck, check_number, misfit
from tvm_scatter.bounds.size_check import check_shape
from tvm_scatter.ops.expectations import (
    EACH_OR_ONE,
    EACH_OR_ONE_TRUE,
    ENOUGH,
    EXPECT_COUNT,
    EXPECT_INDICES,
    EXPECT_NUMBERS,
    EXPECT_SIZES,
    read_of_expected,
)
from tvm_scatter.ops.read_ops import index_tensors
from tvm_scatter.ops.shapes import is_empty, no_elements, same_shape
from tvm_scatter.options import current_options
from tvm_scatter.selection.backend import backend_of

from .legalizations import put_in_front
from .make import check_alone
from .operands import Made
from .plan_read import plan_read
from .target import strategy_of, target_of

#: For each rule, whether a count of true positions and a number of entries obey it.
_FITS: dict[str, Callable[[Any, Any], Any]] = {
    ENOUGH: lambda count, entries: count <= entries,
    EACH_OR_ONE: lambda count, entries: tirx.any(count == entries, entries == 1),
    EACH_OR_ONE_TRUE: lambda count, entries: tirx.any(count == entries, count == 1),
}


def install_legalizations() -> None:
    """Install the legalizations of the operators. Calling it again changes nothing."""
    put_in_front([EXPECT_SIZES], _legalize_sizes, ours=True)
    put_in_front([EXPECT_COUNT], _legalize_count, ours=True)
    put_in_front([EXPECT_INDICES], _legalize_indices, ours=True)
    put_in_front([EXPECT_NUMBERS], _legalize_numbers, ours=True)


def _legalize_sizes(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    tensor, found, wanted, shape = call.args
    operator, what = str(call.attrs["operator"]), str(call.attrs["what"])
    _, strategy = strategy_of(tensor)
    # On a target without a strategy, code may be unable to raise. A match_cast of TVM still
    # compares sizes there.
    checked = tensor
    if strategy is not None:
        checked = check_shape(bb, operator, what, tensor, list(found.values), list(wanted.values))
    if same_shape(tensor.ty.shape.values, shape.values):
        return checked
    # A cast from a formula of a size to that size sends TVM's CanonicalizeBindings round for ever.
    # So the formula is forgotten first.
    known = call.ty
    checked = bb.match_cast(checked, relax.TensorType(None, known.dtype, known.vdevice, known.ndim))
    return bb.match_cast(checked, known)


def _legalize_indices(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    index, target = index_tensors(call)[0], target_of(call.args[0])
    plan = plan_read(read_of_expected(call), target, current_options())
    if plan is None or plan.check is None:
        return index
    check = Made(bb).index_check(plan.read.check)
    return check_alone(bb, check, backend_of(target).device_check, index)


def _legalize_count(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    total, entries = call.args
    _, strategy = strategy_of(total)
    if strategy is None or strategy.backend.bounds_under(current_options()) != "raise":
        return total
    rule, (size,) = str(call.attrs["rule"]), entries.values
    # The count is checked like an index: the index is 0 if the count obeys the rule, else a
    # number beyond the extent.
    extent = size + 1
    room = bb.emit(no_elements(relax.TensorType([extent, 0], "int8", total.ty.vdevice)))

    def misfit(total: te.Tensor, size: Any) -> te.Tensor:
        positions = total.shape[0]

        def element(_: Any) -> Any:
            count = tirx.if_then_else(positions > 0, total[tirx.max(positions - 1, 0)], 0)
            return tirx.Select(_FITS[rule](count, size), tirx.IntImm("int64", 0), size + 1 + count)

        return te.compute((1,), element, name="misfit")

    found = bb.emit_te(misfit, total, size, primfunc_name_hint="misfit")
    operator, what = str(call.attrs["operator"]), str(call.attrs["what"])
    check = CountCheck.of(operator, what, rule, room, found)
    return check_alone(bb, check, strategy.device_check, total)


def _legalize_numbers(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    tensor, numbers, (limit,) = call.args[0], call.args[1], call.args[2].values
    rule, what, operator = (str(call.attrs[name]) for name in ("rule", "what", "operator"))
    _, strategy = strategy_of(tensor)
    if strategy is None:
        return tensor
    if isinstance(numbers.ty, relax.ShapeType):
        [number] = numbers.values
        return check_number(bb, tensor, number, limit, rule=rule, what=what, operator=operator)
    if strategy.backend.bounds_under(current_options()) != "raise" or is_empty(numbers):
        return tensor
    # The numbers are checked like indices.
    room = bb.emit(no_elements(relax.TensorType([limit + 1, 0], "int8", tensor.ty.vdevice)))

    def misfits(numbers: te.Tensor, limit: Any) -> te.Tensor:
        def element(*at: Any) -> Any:
            number = numbers(*at)
            before = numbers(*at[:-1], tirx.max(at[-1] - 1, 0)) if at else number
            return misfit(rule, number, before, limit)

        return te.compute(numbers.shape, element, name="misfit")

    found = bb.emit_te(misfits, numbers, limit, primfunc_name_hint="misfit")
    check = NumberCheck.of(operator, what, rule, room, found)
    return check_alone(bb, check, strategy.device_check, tensor)
