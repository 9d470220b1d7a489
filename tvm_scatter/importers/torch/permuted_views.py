"""Writes to transposed views by a copy, so that the tensor keeps its strides.

PyTorch rewrites ``y.T.index_copy_(...)`` without in-place operators: the new ``y`` is the result of
``index_copy``, transposed, which has its elements in another order in memory than ``y`` had. Other
views of ``y`` are then made of that: ``view`` fails, and ``as_strided`` and windows have the wrong
elements. What is copied into the view keeps the strides of the view. Branches of ``torch.cond`` may
write to tensors that they make themselves.
"""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

from .graphs import graphs_of, name_of, schema_of, with_graphs, writes_in_place


def with_kept_strides(program: Any) -> Any:
    """The program with its writes to permuted tensors split into an operator and a copy.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The program, which is not modified.

    Returns
    -------
    program : torch.export.ExportedProgram
        The new program, or the same one if it has no such writes.
    """
    if not any(_writes_permuted(node) for graph in graphs_of(program) for node in graph.nodes):
        return program
    return with_graphs(program, _split_writes)


def _split_writes(graph: Any) -> None:
    for node in filter(_writes_permuted, list(graph.nodes)):
        _split(graph, node)


def _writes_permuted(node: Any) -> bool:
    if not writes_in_place(node) or name_of(node) == "copy_.default":
        return False
    return _out_of_place(node) is not None and _is_permuted(node.args[0].meta.get("val"))


def _split(graph: Any, node: Any) -> None:
    import torch

    with graph.inserting_before(node):
        result = graph.call_function(_out_of_place(node), node.args, node.kwargs)
        copied = graph.call_function(torch.ops.aten.copy_.default, (node.args[0], result))
    result.meta, copied.meta = copy.copy(node.meta), copy.copy(node.meta)
    node.replace_all_uses_with(copied)
    graph.erase_node(node)


def _out_of_place(node: Any) -> Any:
    """The overload that does the same to a new tensor; ``None`` if there is none."""
    import torch

    schema = schema_of(node)
    name, overload = schema.name.rpartition("::")[2], schema.overload_name or "default"
    packet = getattr(torch.ops.aten, name[:-1], None) if name.endswith("_") else None
    found = getattr(packet, overload, None)
    if found is None or found._schema.is_mutable or not node.args:
        return None
    return found if _parameters(found._schema) == _parameters(schema) else None


def _parameters(schema: Any) -> Any:
    arguments = [(each.name, str(each.type)) for each in schema.arguments]
    return arguments, [str(each.type) for each in schema.returns]


def _is_permuted(value: Any) -> bool:
    """Whether the strides of a tensor may not descend from axis to axis."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    if value is None or "sparse" in str(value.layout):
        return False
    return not all(
        statically_known_true(outer >= inner) for outer, inner in pairwise(value.stride())
    )
