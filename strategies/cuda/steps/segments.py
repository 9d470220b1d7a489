"""Launches that reduce rows, given the updates in the order of their destinations."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, ceil_div
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import aligned_to, launch
from tvm_scatter.strategies.cuda.codegen.source import accumulate_bytes
from tvm_scatter.strategies.cuda.parallel_injective import widest_vector

from . import sorting
from .listed_rows import lanes_and_parts

#: Updates of a chunk.
CHUNK = device_constant("segmented", "kSegmentChunk")
_CHUNKS = device_constant("segmented", "kSegmentChunks")
_SUMS = ("chunks", "chunks_of_chunks")


def add_regions(layout: sorting.Layout, problem: ScatterProblem, sizes: Sizes) -> None:
    """Append the regions of the sums of chunks."""
    row = sizes.width * accumulate_bytes(problem.data_dtype)
    layout.add("chunks", sizes.items // CHUNK * row)
    layout.add("chunks_of_chunks", sizes.items // _CHUNKS * row)


class Segments:
    """The launches of a reduction. Each is a template over lanes and vectors.

    Parameters
    ----------
    header : str
        The device header.
    layout : Layout
        The layout of the workspace, with the regions of :func:`add_regions`.
    lists : str
        C++ declarations of the type ``Key``, of the sorted ``keys`` and ``items``, and of where
        the segment of each destination ``begins`` and ``ends``.
    arguments : dict
        The arguments of the declarations.
    """

    def __init__(
        self,
        operands: Operands,
        header: str,
        layout: sorting.Layout,
        lists: str,
        arguments: sorting.Arguments,
        threads: int,
    ) -> None:
        self._operands, self._header, self._threads = operands, header, threads
        self._vector = widest_vector(operands.problem)
        self.lanes, tiles = lanes_and_parts(operands.problem, operands.sizes)
        text = lists + "  using Wide = Accumulate<Data>;\n"
        for name in _SUMS:
            text += layout.pointer(name, "Wide")
        text += "  const Segments<P, Key> segments{updates, items, chunks, chunks_of_chunks};\n"
        self._text = text + "  (void)begins, (void)ends, (void)segments;\n"
        tiled: sorting.Arguments = {"tiles": ("long long", tiles)}
        self._tiles = tiles
        self._arguments = {**arguments, **layout.arguments(*_SUMS), **tiled}

    @property
    def may_be_long(self) -> bool:
        """Whether there are enough updates for a chunk of them."""
        items = self._operands.sizes.items
        return not isinstance(items, int) or items >= CHUNK

    def sum_chunks(self) -> None:
        """Sum chunks that lie inside of a segment, and chunks of these."""
        items = self._operands.sizes.items
        for to, come, length in (
            ("chunks", "nullptr", CHUNK),
            ("chunks_of_chunks", "chunks", _CHUNKS),
        ):
            if isinstance(items, int) and items < length:
                continue
            self.step(
                f"sum_chunks<P, Key, {{lanes}}, {{vector}}>({to}, {come}, updates, keys, items, "
                "sizes, tiles);",
                items // length,
            )

    def write(self) -> None:
        """Write every row."""
        self.step(
            f"write_segments<P, Key, {{lanes}}, {{vector}}, {self.mean}>(out, {self.source}, "
            "begins, ends, segments, sizes, tiles);",
            self._operands.sizes.destinations,
        )

    @property
    def mean(self) -> str:
        """Whether the reduction is a mean, in C++."""
        return "true" if self._operands.problem.reduces.needs_count else "false"

    @property
    def source(self) -> str:
        """The pointer to the data, in C++."""
        return "out" if self._operands.data is None else "data"

    def step(self, call: str, groups: Any) -> None:
        """Launch ``call``, after filling in ``{lanes}`` and ``{vector}``, for groups of lanes.

        Vectors are single elements if tensors are not aligned.
        """
        data = () if self._operands.data is None else ("data",)
        forms = [call.format(lanes=self.lanes, vector=width) for width in (self._vector, 1)]
        body = (
            f"{self._text}  if ({aligned_to(self._vector, 'out', 'updates', *data)})\n"
            f"    {forms[0]}\n  else\n    {forms[1]}"
        )
        blocks = ceil_div(groups * self._tiles * self.lanes, self._threads)
        launch(self._operands, (self._header,), body, blocks, self._threads, self._arguments)
