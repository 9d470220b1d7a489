"""The graphs of exported programs: what their nodes are, and how they are changed in a copy."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

#: Where the nodes that a decomposition of this package makes tell the operator of the model.
CALLED = "tvm_scatter.called"


def graphs_of(program: Any) -> Iterator[Any]:
    """The graph of a program, and those of its branches."""
    graphs = (getattr(module, "graph", None) for module in program.graph_module.modules())
    return (graph for graph in graphs if graph is not None)


def name_of(node: Any) -> str:
    """The overload that a node calls, such as ``"add.Tensor"``."""
    return str(getattr(node.target, "__name__", ""))


def schema_of(node: Any) -> Any:
    """PyTorch's description of the operator that a node calls; ``None`` if it calls none."""
    return getattr(node.target, "_schema", None)


def writes_in_place(node: Any) -> bool:
    """Whether a node writes to an argument."""
    schema = schema_of(node)
    return schema is not None and bool(schema.is_mutable)


def original_name(node: Any) -> str:
    """The operator that the model called. PyTorch may have decomposed it into this call."""
    schema = getattr(node.meta.get("original_aten"), "_schema", None)
    schema = schema_of(node) if schema is None else schema
    name = node.meta.get("custom", {}).get(CALLED, schema.name)
    return str(name).rpartition("::")[2].rstrip("_")


def copied_graph(program: Any) -> Any:
    """A copy of the graph of a program or module, to be changed and given to :func:`with_graph`."""
    import torch

    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(program.graph, {}))
    return graph


def with_graph(program: Any, graph: Any) -> Any:
    """A copy of a program that has another graph."""
    import torch

    changed = copy.copy(program)
    changed._graph_module = torch.fx.GraphModule(program.graph_module, graph)
    return changed


def with_graphs(program: Any, change: Callable[[Any], None]) -> Any:
    """A copy of a program whose graph, and those of its branches, a function has changed."""
    changed = copy.copy(program)
    changed._graph_module = _changed_module(program.graph_module, change)
    return changed


def _changed_module(module: Any, change: Callable[[Any], None]) -> Any:
    import torch

    graph = copied_graph(module)
    change(graph)
    changed = torch.fx.GraphModule(module, graph)
    for name, branch in list(changed.named_children()):
        if isinstance(branch, torch.fx.GraphModule):
            setattr(changed, name, _changed_module(branch, change))
    return changed
