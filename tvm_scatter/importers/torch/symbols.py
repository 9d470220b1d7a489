"""Arithmetic on sizes that is done by Python's functions and ``torch.sym_max`` and its kin.

TVM's importer knows sums, products and floor division of sizes. Numbers stay numbers here, sizes
stay expressions, and a float of a size becomes a tensor only where a tensor is needed.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

from tvm import relax, tirx

from tvm_scatter.errors import ScatterError
from tvm_scatter.importers.shapes import shape_of

from .arithmetic import is_tensor
from .cancelled import whole_quotient
from .items import is_only_asserted, item, of_tensors

Symbolic = Callable[[Any, Any], Any]

_FLOAT = "float64"

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name) for name in ("ge", "le", "gt", "lt", "eq", "ne")
}
#: The same of expressions.
_RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(tirx, name.upper()) for name in _COMPARISONS
}


def sym_size(node: Any, importer: Any) -> Any:
    """``sym_size``: a number if TVM knows the size, also where PyTorch does not."""
    tensor, *rest = importer._retrieve_args(node.args)
    return shape_of(tensor)[rest[0] if rest else node.kwargs["dim"]]


def sym_storage_offset(node: Any, importer: Any) -> Any:
    """``sym_storage_offset``, which PyTorch asserts not to be negative: TVM's tensors have none."""
    asserted = (user.target is operator.ge and user.args[1] == 0 for user in node.users)
    if not all(asserted):
        raise ScatterError("sym_storage_offset: where a tensor lies in another one is not known.")
    return 0


def _applied(function: Callable[..., Any], node: Any, importer: Any) -> Any:
    operands = [_value(each, importer) for each in node.args]
    if any(map(is_tensor, operands)):
        return of_tensors(node, operands, importer)
    return function(*operands)


def _value(argument: Any, importer: Any) -> Any:
    """An argument as a number or expression. TVM's importer makes comparisons Relax variables."""
    name = getattr(getattr(argument, "target", None), "__name__", "")
    if name in _COMPARISONS:
        return _COMPARISONS[name](*(_value(each, importer) for each in argument.args))
    return importer._retrieve_args(argument)


def _either(of_numbers: Callable[..., Any], of_sizes: Callable[..., Any], *operands: Any) -> Any:
    """Apply Python's function to numbers, TVM's to expressions."""
    known = all(isinstance(each, bool | int | float) for each in operands)
    return of_numbers(*operands) if known else of_sizes(*operands)


def is_real(value: Any) -> bool:
    """Whether a number or an expression is a float."""
    return isinstance(value, float) or "float" in str(getattr(value, "ty", ""))


def _float(value: Any) -> Any:
    if isinstance(value, int | float):
        return float(value)
    return value if is_real(value) else tirx.Cast(_FLOAT, value)


def as_real(value: Any) -> Any:
    """A number or an expression as an expression of type float64."""
    return _constant(_float(value))


def _integer(value: Any) -> Any:
    """Truncated, as ``int`` does."""
    if isinstance(value, int | float):
        return int(value)
    return tirx.Cast("int64", value) if is_real(value) else value


def _same_kind(function: Callable[..., Any], *operands: Any) -> Any:
    """Apply a function of TVM's to floats if one operand is a float."""
    if any(map(is_real, operands)):
        operands = tuple(as_real(each) for each in operands)
    return function(*operands)


def _divided(left: Any, right: Any) -> Any:
    return tirx.div(as_real(left), as_real(right))


def _constant(value: Any) -> Any:
    return tirx.const(value, _FLOAT) if isinstance(value, float) else value


def _raised(base: Any, exponent: Any) -> Any:
    if isinstance(exponent, int) and exponent >= 0:
        return reduce(operator.mul, [base] * exponent, 1)
    return tirx.pow(as_real(base), as_real(exponent))


def _chosen(condition: Any, left: Any, right: Any) -> Any:
    if isinstance(condition, bool):
        return left if condition else right
    if is_real(left) or is_real(right):
        return tirx.Select(condition, as_real(left), as_real(right))
    return tirx.Select(condition, *(_integer_constant(each) for each in (left, right)))


def _integer_constant(value: Any) -> Any:
    return tirx.const(int(value), "int64") if isinstance(value, int) else value


def _of_float(function: Callable[[Any], Any], value: Any) -> Any:
    return function(_float(value))


def _rounded(function: Callable[[Any], Any], value: Any) -> Any:
    """``ceil`` and ``floor`` make integers in Python."""
    return tirx.Cast("int64", function(value)) if is_real(value) else value


def _nearest(value: Any, digits: int | None = None) -> Any:
    """``round``, to the even one of two integers that are as near."""
    if digits is None:
        return _either(round, partial(_rounded, tirx.nearbyint), value)
    if isinstance(value, int | float):
        return round(value, digits)
    raise ScatterError(f"round: a size is rounded to integers, not to {digits} digits.")


def _total(*values: Any) -> Any:
    terms = values[0] if len(values) == 1 and isinstance(values[0], list | tuple) else values
    return reduce(operator.add, terms)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sym_max": partial(_either, max, partial(_same_kind, tirx.max)),
    "sym_min": partial(_either, min, partial(_same_kind, tirx.min)),
    "sym_not": partial(_either, operator.not_, tirx.Not),
    "sym_ite": _chosen,
    "sym_float": _float,
    "sym_int": _integer,
    "sym_sum": _total,
    "sym_sqrt": partial(_either, math.sqrt, partial(_of_float, tirx.sqrt)),
    "_sym_sqrt": partial(_either, math.sqrt, partial(_of_float, tirx.sqrt)),
    "_sym_log2": partial(_either, math.log2, partial(_of_float, tirx.log2)),
    "truediv": partial(_either, operator.truediv, _divided),
    "pow": partial(_either, operator.pow, _raised),
    "and_": partial(_either, operator.and_, tirx.all),
    "or_": partial(_either, operator.or_, tirx.any),
    "ceil": partial(_either, math.ceil, partial(_rounded, tirx.ceil)),
    "floor": partial(_either, math.floor, partial(_rounded, tirx.floor)),
    "trunc": partial(_either, math.trunc, _integer),
    "round": _nearest,
    "pos": lambda value: value,
}


def _quotient(left: Any, right: Any) -> Any:
    """A quotient of floats is rounded, also if what is above the line is a multiple."""
    return left // right if is_real(left) or is_real(right) else whole_quotient(left, right)


_SUMS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": _quotient,
    "mod": operator.mod,
    "neg": operator.neg,
}


def _sum(function: Callable[..., Any], node: Any, importer: Any) -> Any:
    """A sum and so on; ``None`` for sums of tensors, which TVM's importer adds."""
    operands = [_value(each, importer) for each in node.args]
    if any(map(is_tensor, operands)):
        return of_tensors(node, operands, importer)
    return _same_kind(function, *operands)


def _related(relation: Callable[[Any, Any], Any], *operands: Any) -> Any:
    """A comparison of expressions, whose types TVM must find equal."""
    whole = (tirx.Cast("int64", each) if _is_flag(each) else each for each in operands)
    return _same_kind(relation, *map(_integer_constant, whole))


def _is_flag(value: Any) -> bool:
    return not isinstance(value, bool) and str(getattr(value, "ty", "")) == "bool"


def applied(name: str, operands: Sequence[Any]) -> Any:
    """A function of Python's or PyTorch's of numbers, of which none is a tensor.

    Parameters
    ----------
    name : str
        Its name, such as ``"sym_max"`` or ``"le"``.
    operands : sequence
        Numbers, or expressions of type int64, float64 or bool.

    Returns
    -------
    value : number or expression
        The value.
    """
    if name in _COMPARISONS:
        return _either(_COMPARISONS[name], partial(_related, _RELATIONS[name]), *operands)
    if name in _FUNCTIONS:
        return _FUNCTIONS[name](*operands)
    return _same_kind(_SUMS[name], *operands)


def _nothing(node: Any, importer: Any) -> Any:
    """An assertion about sizes, which PyTorch has used already."""
    return relax.Tuple([])


def _unless_only_asserted(symbolic: Symbolic, node: Any, importer: Any) -> Any:
    return _nothing(node, importer) if is_only_asserted(node) else symbolic(node, importer)


def _as_in_tvm(node: Any, importer: Any) -> Any:
    return None


_NUMBERS: dict[str, Symbolic] = {
    "item.default": item,
    "_local_scalar_dense.default": item,
    **dict.fromkeys(_COMPARISONS, _as_in_tvm),
    **{name: partial(_applied, function) for name, function in _FUNCTIONS.items()},
    **{name: partial(_sum, function) for name, function in _SUMS.items()},
}

#: Converters of what makes numbers for the host. ``None`` stands for TVM's own result.
SYMBOLS: dict[str, Symbolic] = {
    "sym_size.int": sym_size,
    "sym_storage_offset.default": sym_storage_offset,
    "sym_constrain_range.default": _nothing,
    "sym_constrain_range_for_size.default": _nothing,
    **{name: partial(_unless_only_asserted, symbolic) for name, symbolic in _NUMBERS.items()},
}
