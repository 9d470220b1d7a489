"""Loops of an ONNX graph that count by themselves, and what reads the results of nodes."""

from __future__ import annotations

from typing import Any, NamedTuple

from .onnx_terms import Terms, graphs_in


class Counting(NamedTuple):
    """A loop that counts by itself and has one more result, in any order."""

    node: Any
    #: Whether it begins, its first number, and the result of no iterations.
    goes_on: str
    first: str
    empty: str
    #: What an iteration is given.
    place: str
    before: str
    #: What an iteration hands on.
    again: str
    following: str
    after: str

    @staticmethod
    def of(terms: Terms, result: str) -> Counting | None:
        """The loop that has a result, if it is one."""
        node, at = terms.producers.get(terms.plain(result), (None, 0))
        if node is None or node.op_type != "Loop" or len(node.input) != 4 or node.input[0]:
            return None
        (body,) = (each.g for each in node.attribute if each.name == "body")
        if len(body.output) != 3:
            return None
        _, goes_on, *initial = node.input
        _, _, *given = (each.name for each in body.input)
        again, *handed = (each.name for each in body.output)
        pairs = (pair for each in (initial, given, handed) for pair in (each[1 - at], each[at]))
        first, empty, place, before, following, after = pairs
        return Counting(node, goes_on, first, empty, place, before, again, following, after)


def readers(graph: Any, loop: Any) -> dict[str, int]:
    """How often the results of a loop are read."""
    counts: dict[str, int] = {}
    for name in (
        *(name for each in graphs_in(graph) for node in each.node for name in node.input),
        *(each.name for each in graph.output),
    ):
        if name in loop.output:
            counts[name] = counts.get(name, 0) + 1
    return counts


def used(nodes: list[Any], wanted: set[str]) -> list[Any]:
    """The nodes that results depend on."""
    wanted = set(wanted)
    kept = []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            kept.append(node)
            wanted.update(node.input)
            inner = (attribute.g for attribute in node.attribute if attribute.HasField("g"))
            wanted.update(
                name
                for outermost in inner
                for graph in graphs_in(outermost)
                for name in (
                    *(name for each in graph.node for name in each.input),
                    *(each.name for each in graph.output),
                )
            )
    return kept[::-1]
