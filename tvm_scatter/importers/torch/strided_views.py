"""Replaces writes through windows or repeated elements of a tensor by writes at strides.

PyTorch rewrites a program without in-place operators when it decomposes it. What is written
through ``unfold`` it adds to zeros: elements outside of the windows are lost. Through ``expand`` it
adds a difference, which is not a number for infinity. Through overlapping strides it writes the
elements that stay behind those that change. Here such a write goes to the tensor that has the
memory, through strides that do not overlap. So does ``as_strided`` of a view, which counts from the
start of that memory.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from tvm_scatter.errors import ScatterError

from .graphs import copied_graph, name_of, schema_of, with_graph, writes_in_place

_REPEATING = ("as_strided", "broadcast_to", "expand", "expand_as")


def with_strided_views(program: Any) -> Any:
    """The program with its writes through windows and repeated elements replaced.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The program, which is not modified.

    Returns
    -------
    program : torch.export.ExportedProgram
        The new program, or the same one if it has no such views.

    Raises
    ------
    ScatterError
        If an element may be written more than once, or sizes are dynamic.
    """
    if not any(_is_strided_view(node) or _written(node) for node in program.graph.nodes):
        return program
    graph = copied_graph(program)
    for node in list(graph.nodes):
        if _is_strided_view(node) and all(map(_is_static, _views(node))):
            node.replace_all_uses_with(_at_strides(graph, node, node))
        for view in _written(node):
            if _is_writable(view):
                node.replace_input_with(view, _at_strides(graph, node, view))
    return with_graph(program, graph)


def _is_strided_view(node: Any) -> bool:
    return _name(node) == "as_strided" and _viewed(node.args[0]) is not None


def _written(node: Any) -> list[Any]:
    """The arguments of a node that it writes to, and that are windows or repeat elements."""
    if not writes_in_place(node):
        return []
    written = []
    for position, argument in enumerate(schema_of(node).arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = node.args[position : position + 1] or (node.kwargs.get(argument.name),)
            written += [view for view in given if hasattr(view, "op")]
    return [view for view in written if any(map(_repeats, _views(view)))]


def _views(node: Any) -> Iterator[Any]:
    """A node and those of whose memory it may be a view, back to the first."""
    while node is not None:
        yield node
        node = _viewed(node)


def _viewed(node: Any) -> Any:
    if node.target is operator.getitem:
        return node.args[0]
    schema = schema_of(node)
    is_view = schema is not None and node.args and any(each.alias_info for each in schema.returns)
    return node.args[0] if is_view and hasattr(node.args[0], "op") else None


def _repeats(node: Any) -> bool:
    return _name(node) in _REPEATING or _is_unfold(node)


def _is_unfold(node: Any) -> bool:
    return _name(node) == "unfold"


def _name(node: Any) -> str:
    return name_of(node).partition(".")[0]


def _is_writable(view: Any) -> bool:
    """Whether to write to a view at its strides; raise if it cannot be written to."""
    views = list(_views(view))
    if not all(map(_is_static, views)):
        _expect_whole_windows(views)
        return False
    owner, layout = _layout(views[::-1])
    size, stride = tuple(layout.shape), layout.stride()
    if _repeats_elements(size, stride):
        name = next(_name(node) for node in views if _repeats(node))
        raise ScatterError(
            f"{name}: a view of shape {size} with strides {stride} has elements more than once, "
            "and cannot be written to; write to a part that has each once."
        )
    return bool(layout.dtype == owner.meta["val"].dtype)


def _at_strides(graph: Any, user: Any, view: Any) -> Any:
    """The same view in front of a node, as strides of the tensor that has the memory."""
    import torch

    owner, layout = _layout(list(_views(view))[::-1])
    place = list(layout.shape), list(layout.stride()), layout.storage_offset()
    with graph.inserting_before(user):
        strided = graph.call_function(torch.ops.aten.as_strided.default, (owner, *place))
    strided.meta = copy.copy(view.meta)
    return strided


def _is_static(node: Any) -> bool:
    values = node.meta["val"]
    values = values if isinstance(values, list | tuple) else [values]
    return all(isinstance(size, int) for value in values for size in value.shape)


def _expect_whole_windows(views: list[Any]) -> None:
    """Raise if there are windows of a dynamic size that overlap, or may leave elements out."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    for node in filter(_is_unfold, views):
        data, dim, size, step = node.args
        extent = data.meta["val"].shape[dim]
        if size != step or not statically_known_true(extent % size == 0):
            raise ScatterError(
                f"unfold: a write through windows of size {size} at steps of {step} needs sizes "
                "that are known at compile time."
            )


def _layout(views: list[Any]) -> tuple[Any, Any]:
    """The tensor that has the memory of a view, and the view as a tensor without memory.

    Whether ``reshape`` copies depends on strides, so the views are made again. What PyTorch stores
    with a program knows neither offsets nor shared memory after it is loaded.
    """
    owner, *others = views
    value = _without_memory(owner)
    memory = _memory(value)
    for before, node in zip(views, others, strict=False):
        values = {before: value}
        if not writes_in_place(node):
            arguments, named = (_in_values(each, values) for each in (node.args, node.kwargs))
            value = node.target(*arguments, **named)
        if not isinstance(value, list | tuple) and _memory(value) != memory:
            owner, value = node, _without_memory(node)
            memory = _memory(value)
    return owner, value


def _in_values(arguments: Any, values: dict[Any, Any]) -> Any:
    from torch.fx.node import map_arg

    return map_arg(arguments, lambda node: values.get(node, _without_memory(node)))


def _without_memory(node: Any) -> Any:
    import torch

    value = node.meta["val"]
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


def _memory(value: Any) -> int:
    return int(value.untyped_storage()._cdata)


def _repeats_elements(size: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether two elements of a view are one."""
    places = np.zeros((), "int64")
    for extent, step in zip(size, stride, strict=True):
        places = np.add.outer(places, step * np.arange(extent))
    return bool(places.size) and bool(np.bincount(places.ravel()).max() > 1)
