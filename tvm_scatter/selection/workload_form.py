"""The problem that a workload of ours carries, read from the text that TVM writes of its graph.

TVM's own reader follows whatever a graph says and may end the process, so it is given none.
"""

from __future__ import annotations

import base64
from typing import Any

from tvm_scatter.errors import ScatterError
from tvm_scatter.problem.plain_data import parse

#: Of a workload as text. Ours have some 10 000 characters.
_MOST_CHARACTERS = 1 << 20
#: Of a problem as text. Ours have some 500 characters.
_MOST_OF_A_PROBLEM = 1 << 14
#: Before the graph stands its length.
_LENGTH_BYTES = 8
PROBLEM = "scatter.problem"


def hash_and_problem(workload: Any) -> tuple[str, str] | None:
    """What the plain data of a workload says: its hash and its problem; ``None`` for a foreign one.

    Raises
    ------
    ScatterError
        If it is not of the form of a workload.
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
    """The text that a map of the graph has under our name."""
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
