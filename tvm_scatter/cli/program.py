"""Checks a program that ``torch.export`` wrote, and writes it anew.

On loading, PyTorch evaluates the expressions in a program, imports modules that it names, calls any
function named as an operator, and compiles names as Python. So only names, numbers, expressions of
sizes and operators of ATen are let through.

What a name may contain depends on its use: as an identifier, between quotes in generated code (the
path of a parameter, a key of an input), or as data (a key of an output).
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from .archive import RefusedError

_NAME = re.compile(r"[\w.@<>+/-]*")
_IDENTIFIERS = "it may have letters, digits and the characters . _ @ < > + / -"
_KEYWORD = re.compile(r"[\w.@<>+/ -]*")
#: Characters that can end a quoted text in Python.
_QUOTES = frozenset("'\"\\")
#: Fields that are dropped: notes on the origin of nodes, and Python code that checks inputs.
_NOTES, _GUARDS = "metadata", "guards_code"
#: Keys of the parameters and constants in the description of a program's tensors.
_STATE = "config"
_CONTAINERS = (
    "builtins.tuple",
    "builtins.list",
    "builtins.dict",
    "collections.OrderedDict",
    "collections.deque",
)
_ON_NUMBERS = re.compile(
    r"_operator\.(add|sub|mul|truediv|floordiv|mod|pow|neg|pos|lshift|rshift|eq|ne|lt|le|gt|ge|and_"
    r"|or_|getitem)|math\.(trunc|floor|ceil)|torch\.(_sym_sqrt|sym_(float|int|ite|max|min|not|sum))"
)
_ON_TENSORS = re.compile(r"torch\.ops\.(aten|prims)\.(\w+)\.(\w+)")
_CONTROL = re.compile(
    r"torch\.ops\.higher_order\.(cond|while_loop|map_impl|scan|associative_scan"
    r"|wrap_with_set_grad_enabled|wrap_with_autocast)"
)
#: The only operator of ATen that opens a file.
_OPENS_FILES = "aten::from_file"
#: Functions that may occur in expressions of sizes.
_FUNCTIONS = re.compile(
    "Symbol|Integer|Float|Rational|Add|Mul|Pow|Max|Min|Mod|Abs|floor|ceiling|Eq|Ne|Lt|Le|Gt|Ge"
    "|Equality|Unequality|StrictLessThan|LessThan|StrictGreaterThan|GreaterThan|And|Or|Not"
    "|Piecewise|ExprCondPair|Tuple|FloorDiv|ModularIndexing|Where|PythonMod|CleanDiv|CeilToInt"
    "|FloorToInt|CeilDiv|LShift|RShift|PowByNatural|FloatPow|FloatTrueDiv|IntTrueDiv"
    "|IsNonOverlappingAndDenseIndicator|TruncToFloat|TruncToInt|RoundToInt|RoundDecimal|ToFloat"
    "|Identity"
)
_PLAIN = "it may become Python, so it must be printable and have neither quotes nor backslashes"
#: Whether a text may be a dict key at a depth, counted from the tuple of all arguments.
IsKey = Callable[[str, int], bool]
#: Allowed characters. No line breaks or comments: SymPy reads them differently from Python.
_ARITHMETIC = re.compile(r"[\w .,+*/%()<>=!&|~'-]*", re.ASCII)
_PARTS = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.Call,
    ast.keyword,
    ast.Tuple,
    ast.Name,
    ast.Constant,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
    ast.expr_context,
)


def clean_program(content: bytes) -> bytes:
    """A program, or the description of its tensors, without anything that could be executed.

    Raises
    ------
    RefusedError
        If it holds something that no program needs.
    """
    try:
        return json.dumps(_clean(json.loads(content))).encode()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise RefusedError(f"holds a program that PyTorch did not write ({error})") from error


def _clean(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return _clean_fields(value, key)
    if isinstance(value, list):
        return [] if key == _GUARDS else [_clean(inner, key) for inner in value]
    if not isinstance(value, str):
        return value
    return _CHECKS.get(key, _name)(value)


def _clean_fields(value: dict[str, Any], key: str) -> dict[str, Any]:
    if key == _NOTES and all(isinstance(note, str) for note in value.values()):
        return {}
    if isinstance(value.get("path_name"), str) and value.get("use_pickle") is not False:
        raise RefusedError("holds a tensor that is pickled")
    check = _path if key == _STATE else _field
    return {check(name): _clean(inner, name) for name, inner in value.items()}


def _field(text: str) -> str:
    """Check a name, or an expression of sizes that has a range."""
    return text if _NAME.fullmatch(text) or _is_expression(text) else _name(text)


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise RefusedError(
            f"holds {_short(text)}, which is no name that may become Python", _IDENTIFIERS
        )
    return text


def _path(text: str) -> str:
    """Check the dotted path of a module, parameter, buffer or constant."""
    if not _is_quotable(text):
        raise RefusedError(
            f"has a module, parameter or buffer with the name {_short(text)}", _PLAIN
        )
    return text


def _is_quotable(text: str) -> bool:
    return text.isprintable() and _QUOTES.isdisjoint(text)


def _operator(text: str) -> str:
    if _ON_NUMBERS.fullmatch(text) or _CONTROL.fullmatch(text) or _is_dispatched(text):
        return text
    raise RefusedError(f"holds the operator {_short(text)}, which is none of ATen's")


def _is_dispatched(text: str) -> bool:
    found = _ON_TENSORS.fullmatch(text)
    if found is None:
        return False
    namespace, name, overload = found.groups()
    full = f"{namespace}::{name}"
    if overload != "default":
        full += f".{overload}"
    return full != _OPENS_FILES and full in _dispatched()


@cache
def _dispatched() -> frozenset[str]:
    """The operators of PyTorch's dispatcher, without those for TorchScript only."""
    import torch

    return frozenset(torch._C._dispatch_get_all_op_names())


def _expression(text: str) -> str:
    if not _is_expression(text):
        raise RefusedError(f"holds {_short(text)}, which is no expression of sizes")
    return text


def _is_expression(text: str) -> bool:
    if not _ARITHMETIC.fullmatch(text):
        return False
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(map(_is_arithmetic, ast.walk(tree)))


def _is_arithmetic(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and bool(_FUNCTIONS.fullmatch(node.func.id))
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        # Symbols and numbers.
        return bool(re.fullmatch(r"[\w.+-]+", node.value))
    return isinstance(node, _PARTS)


def _inputs(text: str) -> str:
    """Check the structure of the arguments: a tuple of positional and a dict of named ones."""
    return _structure(text, _is_key_of_inputs)


def _is_key_of_inputs(key: str, depth: int) -> bool:
    return _is_quotable(key) if depth > 1 else bool(_KEYWORD.fullmatch(key))


def _outputs(text: str) -> str:
    """Check the structure of the results."""
    return _structure(text, lambda key, depth: True)


def _structure(text: str, is_key: IsKey) -> str:
    """Check nested tuples, lists and dicts, which are JSON in a string."""
    version, tree = json.loads(text)
    return json.dumps([version, _container(tree, is_key, 0)])


def _container(tree: dict[str, Any], is_key: IsKey, depth: int) -> dict[str, Any]:
    kind, context, children = tree["type"], tree["context"], tree["children_spec"]
    if kind is not None and kind not in _CONTAINERS:
        raise RefusedError(f"takes or returns {_short(kind)}, which is no tuple, list or dict")
    return {
        "type": kind,
        "context": None
        if context is None
        else json.dumps(_keys(json.loads(context), is_key, depth)),
        "children_spec": [_container(child, is_key, depth + 1) for child in children],
    }


def _keys(value: Any, is_key: IsKey, depth: int) -> Any:
    """Check the keys of a dict, or the length of a deque."""
    if isinstance(value, list):
        return [_keys(key, is_key, depth) for key in value]
    if isinstance(value, dict):
        raise RefusedError(f"takes or returns a dict with {_short(value)}, which is no key")
    if isinstance(value, str) and not is_key(value, depth):
        raise RefusedError(
            f"takes an argument or a dict's item with the name {_short(value)}",
            _PLAIN if depth > 1 else _IDENTIFIERS,
        )
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _as_it_is(text: str) -> str:
    return text


#: The check for a text, by the name of its field.
_CHECKS: dict[str, Callable[[str], str]] = {
    "target": _operator,
    "as_operator": _operator,
    "expr_str": _expression,
    "in_spec": _inputs,
    "out_spec": _outputs,
    "fqn": _path,
    "parameter_name": _path,
    "buffer_name": _path,
    "tensor_constant_name": _path,
    # Arguments of operators, such as messages and modes, which PyTorch quotes.
    "as_string": _as_it_is,
    "as_strings": _as_it_is,
}
