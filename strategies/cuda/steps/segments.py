"""Launches that reduce rows, given the updates in the order of their destinations."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.emit.weighted_rows import WeightedRows
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, ceil_div
from tvm_scatter.problem.vectors import widest_vector
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import aligned_to, launch
from tvm_scatter.strategies.cuda.codegen.source import accumulate_bytes

from . import sorting
from .listed_rows import lanes_and_parts

_CHUNK = device_constant("segmented", "kSegmentChunk")
_CHUNKS = device_constant("segmented", "kSegmentChunks")
_SUMS = ("chunks", "chunks_of_chunks")


def add_regions(layout: sorting.Layout, problem: ScatterProblem, sizes: Sizes) -> None:
    """Append the regions of the sums of chunks."""
    row = sizes.width * accumulate_bytes(problem.data_dtype) * (3 if problem.softmax else 1)
    layout.add("chunks", sizes.items // _CHUNK * row)
    layout.add("chunks_of_chunks", sizes.items // _CHUNKS * row)


def reduce_rows(
    operands: Operands,
    layout: sorting.Layout,
    lists: str,
    arguments: sorting.Arguments,
    threads: int,
) -> None:
    """Emit the launches: sums of chunks of long segments first, then every row once.

    Parameters
    ----------
    layout : Layout
        The layout of the workspace, with the regions of :func:`add_regions`.
    lists : str
        C++ declarations of the type ``Key``, of the sorted ``keys`` and ``items``, and of where
        the segment of each destination ``begins`` and ``ends``.
    arguments : dict
        The arguments of the declarations.
    """
    items = operands.sizes.items
    text = lists + "  using Wide = Accumulate<Data>;\n"
    for name in _SUMS:
        text += layout.pointer(name, "Wide")
    text += "  const Segments<P, Key> segments{updates, items, chunks, chunks_of_chunks};\n"
    text += "  (void)begins, (void)ends, (void)segments;\n"
    arguments = {**arguments, **layout.arguments(*_SUMS)}

    call = (
        "sum_chunks<P, Key, {{lanes}}, {{vector}}>({to}, {come}, updates, keys, items, sizes, "
        "tiles);"
    )
    for to, come, length in (
        ("chunks", "nullptr", _CHUNK),
        ("chunks_of_chunks", "chunks", _CHUNKS),
    ):
        if isinstance(items, int) and items < length:
            continue
        _launch(operands, text, arguments, call.format(to=to, come=come), items // length, threads)
    mean = "true" if operands.problem.reduces.needs_count else "false"
    source = "out" if operands.data is None else "data"
    call = (
        f"write_segments<P, Key, {{lanes}}, {{vector}}, {mean}>(output, {source}, begins, ends, "
        "segments, sizes, tiles);"
    )
    _launch(operands, text, arguments, call, operands.sizes.destinations, threads)


def _launch(
    operands: Operands,
    text: str,
    arguments: sorting.Arguments,
    call: str,
    rows: Any,
    threads: int,
) -> None:
    """Launch a templated call with vectors, or element by element if tensors are not aligned."""
    vector = _vector(operands)
    lanes, tiles = lanes_and_parts(operands.problem, operands.sizes, vector)
    tensors = ("output", "updates") if operands.data is None else ("output", "updates", "data")
    text += (
        f"  if ({aligned_to(vector, *tensors)})\n    {call.format(lanes=lanes, vector=vector)}\n"
    )
    text += f"  else\n    {call.format(lanes=lanes, vector=1)}"
    arguments = {**arguments, "tiles": ("long long", tiles)}
    blocks = ceil_div(rows * tiles * lanes, threads)
    launch(operands, ("segmented",), text, blocks, threads, arguments)


def _vector(operands: Operands) -> int:
    """The elements that a thread has at a time: those of a softmax have one logit."""
    vector = widest_vector(operands.problem)
    if not operands.problem.softmax:
        return vector
    last = WeightedRows(operands.updates, operands.sizes.count).last_column
    while vector > 1 and not _divides(vector, last):
        vector //= 2
    return vector


def _divides(vector: int, size: Any) -> bool:
    return isinstance(size, int) and size % vector == 0
