"""Says at once which operators of a program have no converter, and what to do."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from tvm_scatter.errors import ScatterError

from .graphs import graphs_of, name_of


class UnsupportedOperators(ScatterError, AssertionError):
    """Operators without a converter; TVM's importer raises an ``AssertionError`` for them."""


def refuse_unsupported(program: Any, known: Container[str]) -> None:
    """Check that each operator has a converter.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The decomposed program.
    known : container of str
        The names of the overloads that have a converter.

    Raises
    ------
    UnsupportedOperators
        If there are operators without: all of them are named, each with that of the model from
        which PyTorch has made it.
    """
    nodes = (node for graph in graphs_of(program) for node in graph.nodes)
    calls = (node for node in nodes if node.op == "call_function")
    unknown = {_described(node) for node in calls if name_of(node) not in known}
    if unknown:
        # TVM's own words come first: tests and tools look for them.
        raise UnsupportedOperators(
            f"Unsupported function types [{', '.join(sorted(unknown))}]: there is no converter for "
            "them; compute their results outside of the model and make them inputs, write them "
            "with other operators, or pass converters by custom_convert_map."
        )


def _described(node: Any) -> str:
    name, origin = name_of(node), _origin(node)
    operator = name.partition(".")[0]
    return f"'{name}'" if origin in ("", operator) else f"'{name}' (of {origin})"


def _origin(node: Any) -> str:
    """The function that the model calls, if PyTorch remembers it."""
    original = getattr(node.meta.get("original_aten"), "_schema", None)
    if original is not None:
        return str(original.name).removeprefix("aten::")
    _, function = node.meta.get("torch_fn", ("", ""))
    return str(function).rpartition(".")[2]
