"""Refuses random numbers. TVM has none: its importer makes them constants or leaves them out."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

from tvm_scatter.errors import ScatterError

from .graphs import graphs_of, original_name, writes_in_place

#: What PyTorch calls the switch of an operator that is random in training only.
_SWITCHES = ("train", "training")
#: What PyTorch calls the rate of dropout beside such a switch, or without one.
_RATES = ("p", "dropout", "dropout_p")


def refuse_random_numbers(program: Any, known: Container[str]) -> None:
    """Check that no result depends on random numbers.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The program.
    known : container of str
        The names of the overloads for which the caller has a converter. They are not checked.

    Raises
    ------
    ScatterError
        If a random operator is used.
    """
    for graph in graphs_of(program):
        for node in _used(graph):
            if _is_random(node) and node.target.__name__ not in known:
                raise ScatterError(
                    f"{original_name(node)}: random numbers are not imported; make them an input "
                    "of the model, or call eval() on the model if they are of dropout."
                )


def _used(graph: Any) -> Iterator[Any]:
    """The nodes of which the outputs may be computed, in the order of the graph."""
    used: set[Any] = set()
    for node in reversed(graph.nodes):
        if node in used or node.op == "output" or writes_in_place(node):
            used.update((node, *node.all_input_nodes))
    return (node for node in graph.nodes if node in used)


def _is_random(node: Any) -> bool:
    """Whether an ATen call draws random numbers."""
    import torch

    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    arguments = _arguments(node)
    seeded = torch.Tag.nondeterministic_seeded in node.target.tags
    if not (seeded or "dropout" in node.target.__name__ or "dropout_p" in arguments):
        return False
    return not _is_switched_off(arguments)


def _is_switched_off(arguments: dict[str, Any]) -> bool:
    """Whether the arguments are those of inference, or of dropout with a rate of 0."""
    switches = [arguments[name] for name in _SWITCHES if name in arguments]
    if False in switches:
        return True
    if not switches and "dropout_p" not in arguments:
        return False
    # Recurrent layers have dropout between one another only.
    return arguments.get("num_layers") == 1 or 0 in [arguments.get(name) for name in _RATES]


def _arguments(node: Any) -> dict[str, Any]:
    """The arguments of an ATen call by their names."""
    schema = node.target._schema.arguments
    given = dict(zip((each.name for each in schema), node.args, strict=False))
    defaults = {each.name: each.default_value for each in schema if each.has_default_value()}
    return {**defaults, **given, **node.kwargs}
