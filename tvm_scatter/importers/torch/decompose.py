"""PyTorch's own decompositions of operators for which there is no converter."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Any

from .foreach import of_each
from .gradients import decompositions
from .graphs import graphs_of, name_of

_Table = dict[Any, Callable[..., Any]]

#: TVM's converter takes none without a weight and a bias, and its function for GPUs has memory of
#: its own for an image, whose size it must know.
_GROUP_NORM = "native_group_norm.default"
#: TVM's converters return the normalized tensor, but not the statistics that a gradient reads.
_WITHOUT_STATISTICS = {
    "native_layer_norm.default",
    _GROUP_NORM,
    "_native_batch_norm_legit.no_stats",
    "_native_batch_norm_legit_functional.default",
}


def decompose_unknown(program: Any, known: Container[str]) -> Any:
    """Decompose what has no converter, as far as PyTorch can.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The program, which is not modified.
    known : container of str
        The names of the overloads that have a converter.

    Returns
    -------
    program : torch.export.ExportedProgram
        The decomposed program, or the same one if that would change nothing.
    """
    unknown = {node.target for node in _calls(program) if _is_unknown(node, known)}
    table = _decompositions(unknown, known)
    if unknown.isdisjoint(table):
        return program
    return program.run_decompositions(table)


def reads_more_than_first(node: Any) -> bool:
    """Whether a result of a node may be read that is not its first one."""
    return any(name_of(user) != "getitem" or user.args[1] != 0 for user in node.users)


def _calls(program: Any) -> Iterator[Any]:
    from torch._ops import OpOverload

    nodes = (node for graph in graphs_of(program) for node in graph.nodes)
    return (node for node in nodes if isinstance(node.target, OpOverload))


def _is_unknown(node: Any, known: Container[str]) -> bool:
    name = node.target.__name__
    if name in _WITHOUT_STATISTICS and reads_more_than_first(node):
        return True
    return name not in known or (name == _GROUP_NORM and not _is_plain_norm(node))


def _is_plain_norm(node: Any) -> bool:
    """Whether a norm of groups has a weight and a bias, and images of known size."""
    sizes = node.args[0].meta["val"].shape[2:]
    return None not in node.args[1:3] and all(isinstance(size, int) for size in sizes)


def _decompositions(unknown: set[Any], known: Container[str]) -> _Table:
    """PyTorch's table for export, and its other decompositions of what has no converter."""
    from torch._decomp import decomposition_table
    from torch.export import default_decompositions

    more = {
        op: decomposition
        for op, decomposition in decomposition_table.items()
        if op in unknown or getattr(op, "__name__", "") not in known
    }
    lists = {op: of_each(op) for op in unknown if op.__name__.startswith("_foreach_")}
    return {**more, **decompositions(), **lists, **dict(default_decompositions().items())}
