"""Reads the problem out of a workload, as TVM saves it: a graph of nodes in JSON.

TVM's own reader may end the process on a malformed graph, so it is not used.
"""

from __future__ import annotations

import base64
from typing import Any

from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.plain_data import parse

#: The largest number of characters of a workload. Those of this package have some 10 000.
_MOST_CHARACTERS = 1 << 20
#: The largest number of characters of a problem. Usual ones have some 500.
_MOST_OF_A_PROBLEM = 1 << 14
#: The bytes in front of the graph, which hold its length.
_LENGTH_BYTES = 8
PROBLEM = "scatter.problem"


def hash_and_problem(workload: Any) -> tuple[str, str] | None:
    """The hash and the problem of a workload in JSON; ``None`` if it is not a scatter's.

    Raises
    ------
    ScatterError
        If it does not have the form of a workload.
    """
    if not (isinstance(workload, list) and len(workload) == 2 and _are_texts(workload)):
        raise ScatterError("records: it is no list of hash and workload.")
    written, graph = workload
    if len(graph) > _MOST_CHARACTERS:
        return None
    try:
        problem = _problem(_nodes(graph))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ScatterError(f"records: a workload cannot be read: {error}.") from error
    return None if problem is None else (written, problem)


def _are_texts(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _nodes(graph: str) -> list[Any]:
    raw = base64.b64decode(graph, validate=True)
    if int.from_bytes(raw[:_LENGTH_BYTES], "little") != len(raw) - _LENGTH_BYTES:
        raise ValueError("its length is another")
    nodes = parse(raw[_LENGTH_BYTES:].decode("utf-8"))["nodes"]
    if not isinstance(nodes, list):
        raise TypeError("its nodes are no list")
    return nodes


def _problem(nodes: list[Any]) -> str | None:
    """The text of the problem, which is an attribute in the graph, or ``None`` if there is none."""
    names = {place for place, node in enumerate(nodes) if _text(node) == PROBLEM}
    for node in nodes if names else ():
        if node.get("type") == "ffi.Map":
            entries = node["data"]
            for name, value in zip(entries[::2], entries[1::2], strict=True):
                if name in names:
                    return _bounded(_text(nodes[value]))
    return None


def _text(node: Any) -> str | None:
    data = node.get("data") if node.get("type") == "ffi.String" else None
    return data if isinstance(data, str) else None


def _bounded(problem: str | None) -> str:
    if problem is None or len(problem) > _MOST_OF_A_PROBLEM:
        raise ValueError("its problem is no text of a problem")
    return problem
