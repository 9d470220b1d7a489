"""Segmented: sorts updates by destination, then writes every output row once."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, ceil_div
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import aligned_to, launch
from tvm_scatter.strategies.cuda.codegen.source import accumulate_bytes
from tvm_scatter.strategies.cuda.steps.listed_rows import lanes_and_parts

from .parallel_injective import widest_vector
from .steps import sorting, stages

_CHUNK = device_constant("segmented", "kSegmentChunk")
_CHUNKS = device_constant("segmented", "kSegmentChunks")


class Segmented(Implementation):
    """A stable sort, then a balanced reduction of each row's segment, in a fixed order."""

    name = "segmented"
    list_bytes = 16
    accumulates_wide = True
    deterministic = True
    fuses = True
    summary = "rows with repeated or skewed destinations, where sums must be reproducible"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        if problem.reduces.is_store:
            return "a plain update has nothing to reduce"
        return sorting.refuse_too_many(problem)

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        return {"threads": (128, 256)}

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config) -> Any:
        return _layout(problem, sizes).total

    def emit(self, operands: Operands, config: Config) -> None:
        layout = _layout(operands.problem, operands.sizes)
        sorting.sort(operands, layout)
        _find_segments(operands, layout)
        _sum_chunks(operands, layout, config["threads"])
        _write(operands, layout, config["threads"])


def _layout(problem: ScatterProblem, sizes: Sizes) -> sorting.Layout:
    layout = sorting.Layout()
    sorting.add_regions(layout, problem, sizes)
    for name in ("begins", "ends"):
        layout.add(name, sizes.destinations * sorting.key_bytes(problem, sizes))
    row = sizes.width * accumulate_bytes(problem.data_dtype)
    layout.add("chunks", sizes.items // _CHUNK * row)
    layout.add("chunks_of_chunks", sizes.items // _CHUNKS * row)
    return layout


def _find_segments(operands: Operands, layout: sorting.Layout) -> None:
    places = operands.sizes.destinations
    segments = layout.pointer("begins", "Key") + layout.pointer("ends", "Key")
    stages.stride_launch(
        operands,
        sorting.KEY + segments + "  fill(begins, Key(0), int64(sizes.destinations()));\n"
        "  fill(ends, Key(0), int64(sizes.destinations()));",
        places,
        arguments=layout.arguments("begins", "ends"),
    )
    text, arguments = sorting.sorted_lists(operands, layout)
    stages.stride_launch(
        operands,
        text + segments + "  find_segments(begins, ends, keys, sizes.items(), "
        "static_cast<Key>(sizes.destinations()));",
        operands.sizes.items,
        ("segmented",),
        {**arguments, **layout.arguments("begins", "ends")},
    )


def _emit(operands: Operands, layout: sorting.Layout, call: str, rows: Any, threads: int) -> None:
    """Launch a templated call with vectors, or element by element if tensors are not aligned."""
    vector = widest_vector(operands.problem)
    lanes, tiles = lanes_and_parts(operands.problem, operands.sizes)
    text, arguments = sorting.sorted_lists(operands, layout)
    text += "  using Wide = Accumulate<Data>;\n"
    for name in ("begins", "ends"):
        text += layout.pointer(name, "Key")
    for name in ("chunks", "chunks_of_chunks"):
        text += layout.pointer(name, "Wide")
    text += "  const Segments<P, Key> segments{updates, items, chunks, chunks_of_chunks};\n"
    text += "  (void)begins, (void)ends, (void)segments;\n"
    tensors = ("out", "updates") if operands.data is None else ("out", "updates", "data")
    text += (
        f"  if ({aligned_to(vector, *tensors)})\n    {call.format(lanes=lanes, vector=vector)}\n"
    )
    text += f"  else\n    {call.format(lanes=lanes, vector=1)}"
    arguments |= layout.arguments("begins", "ends", "chunks", "chunks_of_chunks")
    arguments["tiles"] = ("long long", tiles)
    blocks = ceil_div(rows * tiles * lanes, threads)
    launch(operands, ("segmented",), text, blocks, threads, arguments)


def _sum_chunks(operands: Operands, layout: sorting.Layout, threads: int) -> None:
    items = operands.sizes.items
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
        _emit(operands, layout, call.format(to=to, come=come), items // length, threads)


def _write(operands: Operands, layout: sorting.Layout, threads: int) -> None:
    mean = "true" if operands.problem.reduces.needs_count else "false"
    source = "out" if operands.data is None else "data"
    call = (
        f"write_segments<P, Key, {{lanes}}, {{vector}}, {mean}>(out, {source}, begins, ends, "
        "segments, sizes, tiles);"
    )
    _emit(operands, layout, call, operands.sizes.destinations, threads)
