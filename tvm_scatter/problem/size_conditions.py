"""Conditions on the sizes that a model was exported for, as Python writes them.

A function carries those that the type of no input says, such as ``s0 % 2 == 0``, in an attribute.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

#: The attribute of a function, a list of texts in which a size is a name.
CONDITIONS = "tvm_scatter.size_conditions"

#: PyTorch's bound of every size that varies, whether its program needs it or not.
USUAL_LEAST = 2

_Operator = Callable[[Any, Any], Any]
#: TVM's nodes: Python's operators make a wrapper of two equal expressions.
_COMPARISONS = {
    ast.Eq: "EQ",
    ast.NotEq: "NE",
    ast.Lt: "LT",
    ast.LtE: "LE",
    ast.Gt: "GT",
    ast.GtE: "GE",
}
_REAL = "float64"
_EXTREMES = ("min", "max")
_ROUNDED = ("trunc", "floor", "ceil")
_ARITHMETIC: dict[type, _Operator] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}
_BITS: dict[type, _Operator] = {
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}


def parsed(text: str) -> ast.expr:
    """The expression that a text stands for."""
    return ast.parse(text, mode="eval").body


def names_of(condition: ast.AST) -> list[str]:
    """The sizes of a condition, in the order in which they are first written."""
    named = [node for node in ast.walk(condition) if isinstance(node, ast.Name)]
    called = (node.func for node in ast.walk(condition) if isinstance(node, ast.Call))
    functions = {id(node) for each in called for node in ast.walk(each)}
    named.sort(key=lambda node: node.col_offset)
    return list(dict.fromkeys(node.id for node in named if id(node) not in functions))


def value_of(expression: ast.AST, sizes: Mapping[str, Any]) -> Any:
    """An expression of TVM's for a condition or a part of it.

    Parameters
    ----------
    expression : ast.expr
        Of sums, products, quotients, remainders and powers, bits, ``min``, ``max``, ``abs``,
        ``round`` to whole numbers, ``math.trunc`` and its kin, ``torch.sym_float``, comparisons,
        ``and``, ``or`` and ``not``.
    sizes : dict of str to expression
        What stands for each name, of type ``int64``.

    Raises
    ------
    NotImplementedError
        If the expression has anything else in it.
    """
    from tvm import tirx

    def value(node: ast.AST) -> Any:
        return value_of(node, sizes)

    match expression:
        case ast.Constant(value=bool() as known):
            return tirx.const(known, "bool")
        case ast.Constant(value=int() as known):
            return tirx.IntImm("int64", known)
        case ast.Constant(value=float() as known):
            return tirx.const(known, _REAL)
        case ast.Name(id=name) if name in sizes:
            return sizes[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -value(operand)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return tirx.Not(_flag(value(operand)))
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            return tirx.floordiv(_whole(value(left)), _divisor(_whole(value(right))))
        case ast.BinOp(left=left, op=ast.Mod(), right=right):
            return tirx.floormod(_whole(value(left)), _divisor(_whole(value(right))))
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return tirx.div(_real(value(left)), _real(value(right)))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return tirx.pow(_real(value(left)), _real(value(right)))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            return _ARITHMETIC[type(op)](*_alike(value(left), value(right)))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BITS:
            return _BITS[type(op)](_whole(value(left)), _whole(value(right)))
        case ast.Compare(left=left, ops=ops, comparators=others):
            values = [value(left), *map(value, others)]
            compared = [
                getattr(tirx, _COMPARISONS[type(op)])(*_alike(*pair))
                for op, *pair in zip(ops, values, values[1:], strict=False)
                if type(op) in _COMPARISONS
            ]
            if len(compared) == len(ops):
                return reduce(tirx.And, compared)
        case ast.BoolOp(op=op, values=values):
            joined = tirx.And if isinstance(op, ast.And) else tirx.Or
            return reduce(joined, [_flag(value(each)) for each in values])
        case ast.Call(func=ast.Name(id=name), args=args) if name in _EXTREMES:
            of_two = getattr(tirx, name)
            return reduce(lambda left, right: of_two(*_alike(left, right)), map(value, args))
        case ast.Call(func=ast.Name(id="abs"), args=[argument]):
            found = value(argument)
            return tirx.max(found, -found)
        case ast.Call(func=ast.Name(id="round"), args=[argument]):
            # As Python does, to the even one of two that are as near.
            return tirx.nearbyint(_real(value(argument))).astype("int64")
        case ast.Call(func=ast.Attribute(value=ast.Name(), attr="sym_float"), args=[argument]):
            return _real(value(argument))
        case ast.Call(func=ast.Attribute(value=ast.Name(id="math"), attr=name), args=[argument]):
            if name in _ROUNDED:
                return getattr(tirx, name)(_real(value(argument))).astype("int64")
    raise NotImplementedError(ast.unparse(expression))


def _is_flag(value: Any) -> bool:
    return str(value.ty) == "bool"


def _flag(value: Any) -> Any:
    if not _is_flag(value):
        raise NotImplementedError(str(value))
    return value


def _is_real(value: Any) -> bool:
    return str(value.ty) == _REAL


def _real(value: Any) -> Any:
    return value if _is_real(value) else value.astype(_REAL)


def _whole(value: Any) -> Any:
    if _is_real(value):
        raise NotImplementedError(str(value))
    return value


def _alike(left: Any, right: Any) -> tuple[Any, Any]:
    """Two numbers of one type, as Python has them."""
    if _is_flag(left) or _is_flag(right):
        raise NotImplementedError(f"{left} and {right}")
    return (_real(left), _real(right)) if _is_real(left) or _is_real(right) else (left, right)


def _divisor(value: Any) -> Any:
    """A divisor that is never zero: TVM may divide where Python would not come to it."""
    from tvm import tirx

    one = tirx.IntImm("int64", 1)
    if isinstance(value, tirx.IntImm):
        return value if value.value else one
    # A size is not negative, a difference of two may be.
    is_size = isinstance(value, tirx.Var)
    return tirx.max(value, one) if is_size else tirx.Select(value == 0, one, value)
