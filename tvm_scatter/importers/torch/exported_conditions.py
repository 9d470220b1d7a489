"""What an exported program needs of its sizes beyond ranges: PyTorch notes it as Python text."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.sym import Analyzer

from tvm_scatter.problem.size_conditions import (
    CONDITIONS,
    USUAL_LEAST,
    names_of,
    parsed,
    value_of,
)

_OF_A_SIZE = ".size()["
_logger = logging.getLogger("tvm_scatter")
_IN_FORCE: ContextVar[tuple[str, ...]] = ContextVar("conditions", default=())
_Shapes = Mapping[str, Sequence[Any]]


def with_exported_conditions(mod: tvm.IRModule, texts: Sequence[str]) -> tvm.IRModule:
    """The module, whose ``main`` carries the conditions under which it is the exported program."""
    if not texts or "main" not in mod or not isinstance(mod["main"], relax.Function):
        return mod
    mod["main"] = mod["main"].with_attr(CONDITIONS, list(texts))
    return mod


@contextmanager
def noted_conditions(program: Any) -> Iterator[Sequence[str]]:
    """The conditions of a program, which are also those in force inside the block.

    PyTorch notes more while it decomposes the program, which need not hold for its results.
    """
    texts = tuple(dict.fromkeys(_conditions(program)))
    token = _IN_FORCE.set(texts)
    try:
        yield texts
    finally:
        _IN_FORCE.reset(token)


def conditions_in_force() -> Sequence[str]:
    """The conditions of the program that is imported now, as it was before it was decomposed."""
    return _IN_FORCE.get()


def _conditions(program: Any) -> Iterator[str]:
    """The conditions that sizes from two on may break, and that a result may depend on."""
    inputs = {
        node.name: node.meta["val"]
        for node in program.graph.nodes
        if node.op == "placeholder" and "val" in node.meta
    }
    shapes = {name: each.shape for name, each in inputs.items() if hasattr(each, "shape")}
    numbers = {name: each for name, each in inputs.items() if type(each).__name__ == "SymInt"}
    # Only these are known when a function is called.
    sizes = {str(size) for shape in [*shapes.values(), numbers.values()] for size in shape}
    for text in getattr(program, "_guards_code", ()):
        try:
            condition = _Sizes(shapes, numbers).visit(parsed(text))
            variables = {name: tirx.Var(name, "int64") for name in names_of(condition)}
            holds = value_of(condition, variables)
            if not sizes.issuperset(variables):
                continue
        except (NotImplementedError, SyntaxError):
            if _OF_A_SIZE in text:
                _logger.warning("A condition of the exported program is not checked: %s.", text)
            continue
        if not _is_about_ones(condition) and not _is_proved(holds, variables.values()):
            yield ast.unparse(condition)


class _Sizes(ast.NodeTransformer):
    """Puts the symbols in the place of ``L['x'].size()[0]``, a size, and ``L['n']``, a number."""

    def __init__(self, shapes: _Shapes, numbers: Mapping[str, Any]) -> None:
        self._shapes = shapes
        self._numbers = numbers

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        match node:
            case ast.Subscript(
                value=ast.Call(func=ast.Attribute(value=tensor, attr="size"), args=[]),
                slice=ast.Constant(value=int() as axis),
            ):
                name = _name(tensor)
                if name in self._shapes:
                    return parsed(str(self._shapes[name][axis]))
            case _:
                name = _name(node)
                if name in self._numbers:
                    return parsed(str(self._numbers[name]))
        raise NotImplementedError(ast.unparse(node))


def _name(place: ast.AST) -> str:
    return re.sub(r"\W", "_", "_".join(_path(place))).lower()


def _path(tensor: ast.AST) -> list[str]:
    """The keys by which an input is found in ``L``, of which PyTorch makes its name."""
    match tensor:
        case ast.Name(id="L"):
            return []
        case ast.Subscript(value=outer, slice=ast.Constant(value=key)):
            return [*_path(outer), str(key)]
    raise NotImplementedError(ast.unparse(tensor))


def _is_about_ones(condition: ast.AST) -> bool:
    """Whether a condition only tells sizes apart, or from zero and one.

    PyTorch notes many of these for strides and broadcasts, and no result depends on them.
    """
    match condition:
        case ast.Compare(ops=[ast.NotEq()]):
            return True
        case ast.Compare(ops=[ast.GtE()], comparators=[ast.Constant(value=int() as least)]):
            return least <= USUAL_LEAST
        case ast.Compare(ops=[ast.Gt()], comparators=[ast.Constant(value=int() as least)]):
            return least < USUAL_LEAST
        case ast.Compare(left=ast.Constant(value=int() as least), ops=[ast.LtE()]):
            return least <= USUAL_LEAST
        case ast.Compare(left=ast.Constant(value=int() as least), ops=[ast.Lt()]):
            return least < USUAL_LEAST
        case ast.BoolOp(values=values):
            return all(map(_is_about_ones, values))
    return False


def _is_proved(holds: Any, sizes: Any) -> bool:
    analyzer = Analyzer()
    for size in sizes:
        analyzer.bind(size, tvm.ir.Range(USUAL_LEAST, 2**31))
    return bool(analyzer.can_prove(holds))
