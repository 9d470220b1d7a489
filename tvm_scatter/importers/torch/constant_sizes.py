"""Sizes that PyTorch writes as formulas, and of which it knows that they are constants.

Of a sequence that is cut into chunks of four, it takes a chunk's size for a quotient of quotients,
and notes that this is four. TVM cannot simplify such formulas, and multiplies them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from tvm_scatter.problem.size_conditions import parsed

from .graphs import name_of, with_graphs

_VIEWS = ("view.default", "reshape.default", "_unsafe_view.default")


def with_constant_sizes(program: Any, conditions: Iterable[str]) -> Any:
    """The program with constants in the place of sizes that are checked to be these constants.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The program, which is not modified.
    conditions : iterable of str
        What is checked of the sizes of its inputs, by their names.
    """
    known = dict(filter(None, map(_equation, conditions)))
    return with_graphs(program, lambda graph: _replace(graph, known)) if known else program


def _equation(condition: str) -> tuple[str, int] | None:
    """The formula and the number of a condition that says what a size is."""
    match parsed(condition):
        case ast.Compare(
            left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=int() as size)]
        ):
            return ast.unparse(left), size
    return None


def _replace(graph: Any, known: dict[str, int]) -> None:
    for node in list(graph.nodes):
        value = node.meta.get("val")
        if name_of(node) in _VIEWS and len(node.args) == 2 and -1 in node.args[1]:
            tensor, sizes = node.args
            inferred = _constant(value.shape[sizes.index(-1)], known)
            if inferred is not None:
                node.args = tensor, [inferred if each == -1 else each for each in sizes]
        size = _constant(value, known) if node.op == "call_function" else None
        if size is not None and not isinstance(value, int):
            _put(graph, node, size)


def _constant(size: Any, known: dict[str, int]) -> int | None:
    """The number that a size is, if it is a constant."""
    import torch
    from torch.utils._sympy.printers import PythonPrinter

    if isinstance(size, int):
        return size
    if not isinstance(size, torch.SymInt):
        return None
    return known.get(ast.unparse(parsed(PythonPrinter().doprint(size.node.expr))))


def _put(graph: Any, node: Any, size: int) -> None:
    """A number in the place of a node, but for results: the program's signature names these."""
    from torch.fx.node import map_arg

    for user in [user for user in node.users if user.op != "output"]:
        user.args, user.kwargs = (
            map_arg(given, lambda each: size if each is node else each)
            for given in (user.args, user.kwargs)
        )
    if not node.users:
        graph.erase_node(node)
