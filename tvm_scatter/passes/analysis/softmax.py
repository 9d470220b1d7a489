"""Recognises a softmax over the updates of each destination, and the sum that it weights.

Front ends write it as five steps over one index::

    most = maximum of the logits of each destination
    raised = exp(logits - most[index])
    total = sum of raised for each destination
    shares = raised / (total + tiny)[index]
    result = sum of values * shares for each destination
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax

from tvm_scatter.errors import ScatterError
from tvm_scatter.lowering.reads import is_read, read_of
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.names import INDEX_PUT, SCATTER_ELEMENTS
from tvm_scatter.ops.read_forms import ByAxes
from tvm_scatter.ops.scatter_call import ScatterCall, is_scatter
from tvm_scatter.ops.shapes import is_one, same_shape, same_size, static_shape
from tvm_scatter.problem.reductions import FLOATS, numpy_dtype

from .created import uniform_number
from .definitions import Definitions
from .same_value import SameValue

#: Operators that only rename axes, so that each element of the result is one of the operand.
_VIEWS = ("relax.broadcast_to", "relax.expand_dims", "relax.reshape", "relax.squeeze")


@dataclass(frozen=True)
class Softmax:
    """A sum of values that are weighted by a softmax.

    Attributes
    ----------
    call : ScatterCall
        The sum.
    values : relax.Expr
        What is weighted.
    logits : relax.Expr
        The logits.
    views : tuple of relax.Call
        How the shape of the logits is changed before they broadcast to the values, in order.
    """

    call: ScatterCall
    values: Any
    logits: Any
    views: tuple[relax.Call, ...]

    def viewed(self, logits: Any, emit: Callable[[Any], Any]) -> Any:
        """Emit the logits in the shape that broadcasts to the values."""
        for view in self.views:
            logits = emit(relax.Call(view.op, [logits, *view.args[1:]], view.attrs))
        return logits


class SoftmaxSearch:
    """Finds softmaxes in a function."""

    def __init__(self, definitions: Definitions) -> None:
        self._uses = definitions.uses
        self._values = definitions.values
        self.same = SameValue(definitions.values)

    def softmax(self, value: Any) -> Softmax | None:
        """The softmax that an expression ends; ``None`` if it ends none."""
        call = _rows(value)
        if call is None or not call.reduces.is_sum or not self._is_zero(call.data):
            return None
        product = self._call(call.updates, "multiply")
        if product is None or self._uses.get(call.updates) != 1:
            return None
        for shares, values in (product.args, reversed(product.args)):
            views, source = self._viewed(shares)
            logits = self._logits(source, call)
            if logits is not None:
                return Softmax(call, values, logits, views)
        return None

    def _viewed(self, tensor: Any) -> tuple[tuple[relax.Call, ...], Any]:
        """The views that make a tensor, the first one first, and what they are made from."""
        views: list[relax.Call] = []
        while True:
            call: Any = self._values.get(tensor) if isinstance(tensor, relax.Var) else None
            if operator_of(call) not in _VIEWS or self._uses.get(tensor) != 1:
                return tuple(views), tensor
            views.insert(0, call)
            tensor = call.args[0]

    def _logits(self, shares: Any, call: ScatterCall) -> Any:
        """The logits of which a tensor is the softmax by the index of a call."""
        quotient = self._call(shares, "divide")
        if quotient is None or self._uses.get(shares) != 1:
            return None
        raised, divisor = quotient.args
        total = self._read(divisor, call)
        total = None if total is None else self._without_tiny(total)
        power = self._call(raised, "exp")
        difference = None if power is None else self._call(power.args[0], "subtract")
        if total is None or difference is None:
            return None
        logits, subtrahend = difference.args
        most = self._read(subtrahend, call)
        if most is None or not self._is_reduced(most, "max", logits, call):
            return None
        return logits if self._is_reduced(total, "add", raised, call) else None

    def _read(self, var: Any, call: ScatterCall) -> Any:
        """What is read for each update by the index of a call, one row for each destination."""
        value: Any = self._values.get(var)
        if not is_read(value):
            return None
        try:
            read = read_of(value)
        except ScatterError:
            return None
        if read is None or read.form != ByAxes((0,)):
            return None
        # Else a negative index reads another row than it scatters to.
        if call.wrap_negative and not read.check.wrap_negative:
            return None
        [index] = read.check.indices
        if not self.same(getattr(index, "expression", None), call.indices[0]):
            return None
        return value.args[0]

    def _without_tiny(self, var: Any) -> Any:
        """A tensor of sums of at least 1, without what is added and lost by rounding."""
        total = self._call(var, "add")
        if total is None:
            return var
        for sums, tiny in (total.args, reversed(total.args)):
            single = all(map(is_one, static_shape(tiny) or ()))
            number = uniform_number(tiny) if single else None
            one = numpy_dtype(str(var.ty.dtype)).type(1)
            if number is not None and 0 <= number < 1 and one + one.dtype.type(number) == one:
                return sums
        return None

    def _is_reduced(self, var: Any, reduction: str, updates: Any, by: ScatterCall) -> bool:
        """Whether a tensor has, for each destination of a call, some updates reduced."""
        call = _rows(self._values.get(var))
        if call is None or call.reduction != reduction:
            return False
        if call.wrap_negative != by.wrap_negative or call.leaves_out != by.leaves_out:
            return False
        begins = not call.include_self or (call.reduces.is_sum and self._is_zero(call.data))
        extents = [static_shape(each.data)[0] for each in (call, by)]  # type: ignore[index]
        return (
            begins
            and same_size(*extents)
            and self.same(call.indices[0], by.indices[0])
            and self.same(call.updates, updates)
        )

    def _is_zero(self, data: Any) -> bool:
        return uniform_number(self._values.get(data)) == 0

    def _call(self, var: Any, name: str) -> Any:
        value = self._values.get(var) if isinstance(var, relax.Var) else None
        return value if operator_of(value) == f"relax.{name}" else None


def _rows(value: Any) -> ScatterCall | None:
    """A scatter of whole rows of floats along the first axis by one index of one axis."""
    if not is_scatter(value):
        return None
    call = ScatterCall.from_call(value)
    if call.form not in (INDEX_PUT, SCATTER_ELEMENTS) or call.axes != (0,) or call.in_place:
        return None
    shapes: Sequence[Any] = [static_shape(each) for each in call.tensors]
    if str(call.data.ty.dtype) not in FLOATS or None in shapes:
        return None
    data, index, updates = map(list, shapes)
    # Elements of a tensor with one axis are its rows.
    if call.form == SCATTER_ELEMENTS and len(data) != 1:
        return None
    if len(index) != 1 or not isinstance(call.updates, relax.Var):
        return None
    return call if same_shape(updates, [*index, *data[1:]]) else None
