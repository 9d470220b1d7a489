"""Which variables of a function may share memory, and which memory is not the function's own.

The answer errs on one side: two variables that certainly do not share may be taken to share.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_scatter.batch import is_batch, scatters_of
from tvm_scatter.ops import CHOOSE

from .broadcast_source import static_shape
from .effects import may_write
from .fold_broadcast_index import is_scatter
from .known_values import numbers
from .steps import Step

#: Elements up to which TVM evaluates a tensor without inputs at compile time and keeps it.
_FOLDED_ELEMENTS = 1024
CREATION = frozenset(
    f"relax.{name}"
    for name in ("arange", "eye", "full", "full_like", "ones", "ones_like", "zeros", "zeros_like")
)
#: Operators that write a new tensor even where their result has the shape of an operand. What only
#: moves elements is not here: TVM may find that it moves none, and make a view of it.
_FRESH = frozenset(
    f"relax.{name}"
    for name in (
        *("cos", "erf", "exp", "log", "matmul", "negative", "rsqrt", "sigmoid", "sin", "sqrt"),
        *("square", "tanh", "where", "nn.attention", "nn.conv1d", "nn.conv2d", "nn.gelu"),
        *("nn.layer_norm", "nn.relu", "nn.rms_norm", "nn.silu", "nn.softmax"),
    )
)
#: The same, unless one operand is a number that changes nothing.
_ARITHMETIC = frozenset(
    f"relax.{name}" for name in ("add", "divide", "maximum", "minimum", "multiply", "subtract")
)
CALL_TIR_INPLACE = "relax.call_tir_inplace"
_WRITES_ARGUMENTS = (CALL_TIR_INPLACE, "relax.call_inplace_packed")


class Storage:
    """Sets of variables that may share memory; more are joined as calls become in place.

    Parameters
    ----------
    function : relax.Function
        The function.
    steps : iterable of Step
        Its bindings, or the first of them: the others are added in their order.
    """

    def __init__(self, function: relax.Function, steps: Iterable[Step]) -> None:
        self._parents: dict[Any, Any] = {}
        self._members: dict[Any, set[Any]] = {}
        self._foreign: set[Any] = set()
        self._folded: set[Any] = set()
        self.parameters = set(function.params)
        for step in steps:
            self.add(step)

    def members(self, var: Any) -> frozenset[Any]:
        """The variables that may share memory with one, itself included."""
        return frozenset(self._members.get(self._root(var), {var}))

    def is_foreign(self, var: Any) -> bool:
        """Whether the memory may be a constant's, or somebody else's whom nobody here knows."""
        return bool(self._foreign & self.members(var))

    def join(self, left: Any, right: Any) -> None:
        """Let two variables share memory."""
        into, from_ = self._root(left), self._root(right)
        if into.same_as(from_):
            return
        members = self._members.setdefault(into, {into})
        members |= self._members.pop(from_, {from_})
        self._parents[from_] = into

    def _root(self, var: Any) -> Any:
        while var in self._parents:
            var = self._parents[var]
        return var

    def add(self, step: Step) -> None:
        """Take note of what a binding shares with earlier ones."""
        var, value = step.var, step.value
        if isinstance(value, relax.Function):
            # A closure keeps what it captures, and may run at any time.
            self._foreign |= {var, *step.reads}
            return
        if self._becomes_constant(value):
            self._folded.add(var)
            self._foreign.add(var)
        if isinstance(value, relax.Call):
            self._add_call(var, value)
            return
        if isinstance(value, relax.If):
            branches = (value.true_branch.body, value.false_branch.body)
            if any(not isinstance(branch, relax.Var) for branch in branches):
                self._foreign.add(var)
        if isinstance(value, tvm.ir.GenericConst) or _holds_constant(value):
            self._foreign.add(var)
        for read in step.reads:
            self.join(var, read)

    def _add_call(self, var: Any, call: relax.Call) -> None:
        operands = list(_leaves(call.args))
        variables = [leaf for leaf in operands if isinstance(leaf, relax.Var)]
        known = isinstance(call.op, tvm.ir.Op)
        name = call.op.name if known else ""
        if name.startswith("relax.call_tir") and name not in _WRITES_ARGUMENTS:
            shared = [leaf for leaf in operands if _may_be_view(var, leaf)]
        elif name == CALL_TIR_INPLACE:
            shared = overwritten_operands(call)
        elif is_batch(call):
            shared = [each.args[0] for each in scatters_of(call) if may_write(each)]
        elif is_scatter(call):
            shared = [call.args[0]] if _may_do_nothing(call) else []
        elif known and call.op.has_attr("FLegalize") and name not in _WRITES_ARGUMENTS:
            fresh = name in (CHOOSE, *_FRESH, *CREATION) or _computes(call)
            shared = [] if fresh else [leaf for leaf in operands if _may_be_view(var, leaf)]
        else:
            # Somebody else's code may return what it was given, or keep what it returns.
            shared = variables
            self._foreign.add(var)
        for leaf in shared:
            if isinstance(leaf, relax.Var):
                self.join(var, leaf)
            else:
                self._foreign.add(var)

    def _becomes_constant(self, value: Any) -> bool:
        """Whether TVM may evaluate an expression at compile time."""
        if isinstance(value, tvm.ir.GenericConst):
            return True
        if not isinstance(value, relax.Call):
            return isinstance(value, relax.Var) and value in self._folded
        tensors = [leaf for leaf in _leaves(value.args) if _is_tensor(leaf)]
        name = value.op.name if isinstance(value.op, tvm.ir.Op) else ""
        if not tensors or name in CREATION:
            size = _elements(value)
            return size is not None and size <= _FOLDED_ELEMENTS
        return all(
            isinstance(leaf, tvm.ir.GenericConst) or leaf in self._folded for leaf in tensors
        )


def overwritten_operands(call: relax.Call) -> list[Any]:
    """What a call of a function that is in place overwrites: its results are these tensors."""
    places = (int(place) for place in call.attrs.inplace_indices)
    return [call.args[1].fields[place] for place in places if place >= 0]


def is_created(value: Any) -> bool:
    """Whether an expression makes a tensor from nothing but numbers."""
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") in CREATION


def fill_value(value: Any) -> Any:
    """The scalar that all elements of a new tensor equal, or ``None`` if they may differ."""
    name = value.op.name if is_created(value) else ""
    if name in ("relax.full", "relax.full_like"):
        # The fill may be of another type than the tensor.
        fill = value.args[1]
        return fill if str(fill.ty.dtype) == str(value.ty.dtype) else None
    for start, number in (("relax.zeros", 0), ("relax.ones", 1)):
        if name.startswith(start):
            return relax.const(number, str(value.ty.dtype))
    return None


def _leaves(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, relax.Tuple):
            yield from _leaves(value.fields)
        else:
            yield value


def _holds_constant(value: Any) -> bool:
    return isinstance(value, relax.Tuple) and any(
        isinstance(leaf, tvm.ir.GenericConst) for leaf in _leaves([value])
    )


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, relax.Var | tvm.ir.GenericConst)


def _elements(tensor: Any) -> int | None:
    static = numbers(static_shape(tensor))
    return None if static is None else int(np.prod(static, dtype=np.int64))


def _may_be_view(result: Any, operand: Any) -> bool:
    """Whether TVM might find that a result is an operand in another shape."""
    if not _is_tensor(operand):
        return False
    results = _tensor_types(result.ty)
    operands = _tensor_types(operand.ty)
    if results is None or operands is None:
        return True
    return any(_same_content(left, right) for left in results for right in operands)


def _tensor_types(type_: Any) -> list[Any] | None:
    if isinstance(type_, relax.TensorType):
        return [type_]
    if not isinstance(type_, relax.TupleType):
        return None
    fields = [_tensor_types(field) for field in type_.fields]
    return [each for field in fields for each in (field or [type_])]


def _same_content(left: Any, right: Any) -> bool:
    if not isinstance(left, relax.TensorType) or not isinstance(right, relax.TensorType):
        return True
    if str(left.dtype) != str(right.dtype):
        return False
    sizes = [numbers(getattr(each.shape, "values", None)) for each in (left, right)]
    if sizes[0] is None or sizes[1] is None:
        return True
    return bool(np.prod(sizes[0], dtype=np.int64) == np.prod(sizes[1], dtype=np.int64))


def _may_do_nothing(call: relax.Call) -> bool:
    """Whether a scatter may be lowered to its data: where there is nothing to write."""
    shapes = [static_shape(leaf) or [] for leaf in _leaves(call.args)]
    return any(numbers([size]) == (0,) for shape in shapes for size in shape)


def _computes(call: relax.Call) -> bool:
    """Whether an arithmetic operator changes its operands for certain."""
    if call.op.name not in _ARITHMETIC:
        return False
    constants = [leaf for leaf in call.args if isinstance(leaf, tvm.ir.GenericConst)]
    return not any(_is_neutral(constant) for constant in constants)


def _is_neutral(constant: Any) -> bool:
    value = np.asarray(constant.value.numpy())
    return value.size == 1 and (value.item() in (0, 1) or not np.isfinite(value.item()))
