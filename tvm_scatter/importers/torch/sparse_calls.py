"""Changes calls with sparse tensors that PyTorch cannot decompose, though it exports them.

Conversions from one sparse layout to another are taken out: here all tensors are coordinates. A
factor that is a number becomes a tensor.
"""

from __future__ import annotations

from typing import Any

from tvm_scatter.errors import ScatterError

from .graphs import copied_graph, name_of, with_graph

_COMPRESSED = ("csr", "csc", "bsr", "bsc")
#: What only compressed rows or columns have, or takes them alone.
_OF_COMPRESSED = (
    *("crow_indices", "col_indices", "ccol_indices", "row_indices", "values"),
    *("_sparse_mm_reduce_impl", "sparse_sampled_addmm"),
)
_CONVERSIONS = ("to_sparse", "to_sparse_csr", "to_sparse_csc", "to_sparse_bsr", "to_sparse_bsc")
#: PyTorch decomposes these with tensors alone.
_WITH_NUMBERS = ("mul.Tensor", "div.Tensor")


def with_plain_sparse_calls(program: Any) -> Any:
    """The program with such calls changed.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The program, which is not modified.

    Returns
    -------
    program : torch.export.ExportedProgram
        The new program, or the same one if it has no sparse tensors.

    Raises
    ------
    ScatterError
        If a dense tensor is converted, or compressed rows or columns are read as such.
    """
    if not any(map(has_sparse_layout, program.graph.nodes)):
        return program
    for node in program.graph.nodes:
        _expect_any_layout(node)
    graph = copied_graph(program)
    for node in list(graph.nodes):
        if _is_conversion(node):
            node.replace_all_uses_with(_converted(node))
            graph.erase_node(node)
        elif name_of(node) in _WITH_NUMBERS and isinstance(node.args[1], int | float):
            _make_tensor(graph, node)
    return with_graph(program, graph)


def has_sparse_layout(node: Any) -> bool:
    """Whether the value of a node is a sparse tensor of any layout."""
    return "sparse" in _layout(node)


def _layout(node: Any) -> str:
    return str(getattr(node.meta.get("val"), "layout", ""))


def _expect_any_layout(node: Any) -> None:
    name, _, overload = name_of(node).partition(".")
    reads = name in _OF_COMPRESSED or (name, overload) == ("_sparse_mm", "reduce")
    if reads and any(_layout(each).endswith(_COMPRESSED) for each in node.all_input_nodes):
        raise ScatterError(
            f"{name.lstrip('_')}: compressed rows and columns of sparse tensors are not imported; "
            "write it with the indices and values that the sparse tensor was made of."
        )


def _converted(node: Any) -> Any:
    if not has_sparse_layout(node.args[0]):
        raise ScatterError(
            f"{name_of(node).partition('.')[0].lstrip('_')}: a dense tensor cannot be made sparse "
            "here; leave it dense, or make the sparse one by torch.sparse_coo_tensor of its "
            "indices and values."
        )
    return node.args[0]


def _make_tensor(graph: Any, node: Any) -> None:
    """A tensor without axes promotes types as a number does."""
    import torch

    number = node.args[1]
    dtype = torch.as_tensor(number).dtype
    with graph.inserting_before(node):
        factor = graph.call_function(
            torch.ops.aten.scalar_tensor.default, (number,), {"dtype": dtype}
        )
    node.update_arg(1, factor)


def _is_conversion(node: Any) -> bool:
    name, _, overload = name_of(node).partition(".")
    # With a number of sparse axes the others become dense ones.
    return name.lstrip("_") in _CONVERSIONS and overload == "default"
