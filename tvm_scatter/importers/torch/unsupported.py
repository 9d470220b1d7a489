"""Says at once which operators of a program have no converter, and what to do."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

from tvm_scatter.errors import ScatterError


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
    unknown = {_described(node) for node in _calls(program) if node.target.__name__ not in known}
    if unknown:
        # TVM's own words come first: tests and tools look for them.
        raise UnsupportedOperators(
            f"Unsupported function types [{', '.join(sorted(unknown))}]: there is no converter for "
            "them; compute their results outside of the model and make them inputs, write them "
            "with other operators, or pass converters by custom_convert_map."
        )


def _calls(program: Any) -> Iterator[Any]:
    for module in program.graph_module.modules():
        graph = getattr(module, "graph", None)
        for node in graph.nodes if graph is not None else ():
            if node.op == "call_function":
                yield node


def _described(node: Any) -> str:
    name, origin = node.target.__name__, _origin(node)
    operator = name.partition(".")[0]
    return f"'{name}'" if origin in ("", operator) else f"'{name}' (of {origin})"


def _origin(node: Any) -> str:
    """The function that the model calls, if PyTorch remembers it."""
    original = getattr(node.meta.get("original_aten"), "_schema", None)
    if original is not None:
        return str(original.name).removeprefix("aten::")
    _, function = node.meta.get("torch_fn", ("", ""))
    return str(function).rpartition(".")[2]
