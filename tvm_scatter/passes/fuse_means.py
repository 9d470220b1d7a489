"""Makes a sum that is divided by the number of its updates a mean.

Graph libraries write a mean as two scatters, of the messages and of a one for each, and a division.
An implementation that writes every row once knows how many updates a row has, so that no tensor of
counts is needed.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from tvm_scatter.errors import ScatterError
from tvm_scatter.lowering.plan import Way, plan
from tvm_scatter.lowering.target import strategy_of
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.names import COPY_RANGES
from tvm_scatter.ops.scatter_call import ScatterCall, is_scatter
from tvm_scatter.ops.shapes import same_size, static_shape
from tvm_scatter.options import current_options
from tvm_scatter.passes.analysis.bindings import Binding, Bindings
from tvm_scatter.passes.analysis.broadcast_source import origin
from tvm_scatter.passes.analysis.created import made_by, uniform_number
from tvm_scatter.passes.analysis.definitions import Definitions
from tvm_scatter.passes.analysis.effects import may_write
from tvm_scatter.passes.analysis.same_value import SameValue
from tvm_scatter.problem.reductions import FLOATS

from .functions import with_changes, with_values
from .report import note


def FuseMeans() -> tvm.transform.Pass:
    """The pass."""

    def fuse(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        return with_changes(mod, lambda name, function: _fused(mod, name.name_hint, function))

    return tvm.transform.module_pass(fuse, opt_level=0, name="FuseMeans")


def _fused(mod: tvm.IRModule, name: str, function: relax.Function) -> relax.Function | None:
    """The function with means, or ``None`` if it has no such division."""
    bindings, search = Bindings(function), _Search(Definitions.of(function))
    found: dict[Any, relax.Expr] = {}
    for binding in bindings:
        mean = search.mean(binding, bindings)
        if mean is not None:
            found[binding.var] = mean.to_call()
            note("fuse", f"{name}.{binding.var.name}", "is a mean, which needs no tensor of counts")
    return with_values(mod, function, found) if found else None


class _Search:
    """Finds the parts of a mean in a function."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._values = definitions.values
        self._same = SameValue(definitions.values)

    def mean(self, binding: Binding, bindings: Bindings) -> ScatterCall | None:
        """The mean that a division computes; ``None`` if it is none."""
        if not binding.fused or operator_of(binding.value) != "relax.divide":
            return None
        dividend, divisor = binding.value.args
        total = self._total(dividend)
        if total is None or self._definitions.uses.get(dividend) != 1:
            return None
        if not self._is_its_count(total, divisor, binding.value):
            return None
        if not all(self._definitions.reaches(each, binding.var) for each in _vars(total)):
            return None
        [at] = [each.at for each in bindings if each.var.same_as(dividend)]
        if any(may_write(each.value) for each in bindings.all[at : binding.at]):
            return None
        mean = total.replace(reduction="mean", include_self=False)
        return mean if _is_orderable(mean) else None

    def _total(self, var: Any) -> ScatterCall | None:
        """The scatter into zeros whose updates are added up whole rows at a time."""
        value = self._values.get(var)
        if not is_scatter(value):
            return None
        call = ScatterCall.from_call(value)
        if call.form == COPY_RANGES or not call.reduces.is_sum or call.in_place:
            return None
        strategy = strategy_of(call.data)[1]
        if strategy is None or not strategy.backend.fuses_under(current_options()):
            return None
        if not isinstance(call.updates, relax.Expr) or str(call.data.ty.dtype) not in FLOATS:
            return None
        if uniform_number(made_by(call.data, self._values)) != 0 or not _is_orderable(call):
            return None
        return call

    def _is_its_count(self, total: ScatterCall, divisor: Any, quotient: Any) -> bool:
        """Whether a tensor has the number of updates of each row of a sum, but at least 1."""
        [axis] = total.axes
        shape, own = static_shape(quotient), static_shape(divisor)
        wanted = static_shape(total.data)
        if shape is None or own is None or wanted is None or len(own) != len(wanted):
            return False
        if not all(map(same_size, shape, wanted)):
            return False
        clamped = origin(divisor, axis, self._values)
        counted = None if clamped is None else self._at_least_one(clamped.tensor)
        if clamped is None or counted is None:
            return False
        found = origin(counted, clamped.axis, self._values)
        count = None if found is None else self._total(found.tensor)
        return (
            found is not None
            and count is not None
            and found.axis == count.axes[0]
            and uniform_number(self._values.get(count.updates, count.updates)) == 1
            and count.wrap_negative == total.wrap_negative
            and count.leaves_out == total.leaves_out
            and same_size(static_shape(count.data)[found.axis], wanted[axis])  # type: ignore[index]
            and self._same(count.indices[0], total.indices[0])
        )

    def _at_least_one(self, var: Any) -> Any:
        """The tensor that a tensor is the maximum of and 1; ``None`` if it is no such maximum."""
        value: Any = self._values.get(var)
        if operator_of(value) == "relax.maximum" and uniform_number(value.args[1]) == 1:
            return value.args[0]
        # What the maximum is written as that keeps a NaN, as a front end's clamp does.
        if operator_of(value) != "relax.where":
            return None
        chosen, first, second = value.args
        condition: Any = self._values.get(chosen)
        if operator_of(condition) in ("relax.less", "relax.less_equal"):
            count, one = second, first
        else:
            count, one = first, second
            condition = self._without_nan(condition, count)
            if operator_of(condition) not in ("relax.greater", "relax.greater_equal"):
                return None
        compared, least = condition.args
        is_maximum = compared.same_as(count) and uniform_number(least) == uniform_number(one) == 1
        return count if is_maximum else None

    def _without_nan(self, condition: Any, count: Any) -> Any:
        """What is asked of a tensor besides whether it is not a number, if that is."""
        if operator_of(condition) != "relax.logical_or":
            return condition
        is_nan: Any = self._values.get(condition.args[0])
        other: Any = self._values.get(condition.args[1])
        is_its = operator_of(is_nan) == "relax.isnan" and is_nan.args[0].same_as(count)
        return other if is_its else None


def _vars(call: ScatterCall) -> list[Any]:
    return [each for each in call.tensors if isinstance(each, relax.Var)]


def _is_orderable(call: ScatterCall) -> bool:
    """Whether one index names each whole row, so that two scatters by it count alike."""
    target, strategy = strategy_of(call.data)
    if strategy is None or call.axes != (0,):
        return False
    try:
        planned = plan(call.to_call(), target, current_options())
    except ScatterError:
        return False
    return planned.way is Way.SCATTER and planned.lowered[0].orderable
