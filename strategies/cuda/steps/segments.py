"""Launches that reduce rows, given the updates in the order of their destinations."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tvm_scatter.emit.operands import Operands
from tvm_scatter.emit.weighted_rows import WARP, WeightedRows
from tvm_scatter.problem.reductions import HALVES, item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, at_least, ceil_div
from tvm_scatter.problem.vectors import widest_vector
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import aligned_to, launch
from tvm_scatter.strategies.cuda.codegen.source import accumulate_bytes

from . import sorting
from .listed_rows import even_entries, few_bytes, lanes_and_parts

#: A piece of a long segment has two to the power of this many entries, or a few more; twice as many
#: where sums of pieces would take much memory.
_PIECE_BITS = 5
_MANY = 1 << 21
_TOGETHER = 1 << device_constant("segmented", "kTogetherBits")
_LONG_ROW_THREADS = device_constant("segmented", "kLongRowThreads")
_LONG_ROWS = device_constant("segmented", "kLongRows")
#: A segment of up to three times the mean delays nobody, if it has no more entries than this.
#: Where there is little work to share, all that have two pieces are long.
_USUAL, _MOST = 3, 256
#: Threads of a multiprocessor that must have registers where logits are sums. The compiler would
#: take 96 for each, and twice as many 16-bit floats in a vector leave room for fewer.
_SUMMING_THREADS, _SUMMING_THREADS_OF_HALVES = 1024, 768
#: Updates whose elements have so many bytes are read before anything is computed with them. Shorter
#: ones would take more registers, and 1.06 to 1.11 of the time.
_READ_FIRST_BYTES = 4
_SUMS = ("pieces", "together")


def add_regions(layout: sorting.Layout, problem: ScatterProblem, sizes: Sizes) -> None:
    """Append the regions of the sums of pieces."""
    row = sizes.width * accumulate_bytes(problem.data_dtype) * (3 if problem.softmax else 1)
    piece = _piece(sizes)
    layout.add("pieces", ceil_div(sizes.items, piece) * row)
    layout.add("together", ceil_div(sizes.items, piece * _TOGETHER) * row)


def _piece(sizes: Sizes) -> Any:
    """The fewest entries of a piece."""
    return (1 << _PIECE_BITS) * (1 + _are_many(sizes))


def _are_many(sizes: Sizes) -> Any:
    items = sizes.items
    if isinstance(items, int):
        return int(items >= _MANY)
    return tirx.Cast("int64", items >= tirx.IntImm("int64", _MANY))


def reduce_rows(
    operands: Operands,
    layout: sorting.Layout,
    lists: str,
    arguments: sorting.Arguments,
    threads: int,
) -> None:
    """Emit the launches: short rows and sums of pieces of long ones, then rows from these sums.

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
    items, piece = operands.sizes.items, _piece(operands.sizes)
    text = lists + "  using Wide = Accumulate<Data>;\n"
    for name in _SUMS:
        text += layout.pointer(name, "Wide")
    text += f"""  const uint32 longest = static_cast<uint32>(
      max(min(min(usual, even), {_MOST}ll), (2ll << bits) - 1));
  (void)begins, (void)ends, (void)keys, (void)longest;
"""
    arguments = {**arguments, **layout.arguments(*_SUMS)}
    arguments["usual"] = "long long", _USUAL * items // at_least(operands.sizes.destinations, 1)
    arguments["even"] = "long long", even_entries(operands.problem, operands.sizes)
    arguments["bits"] = "long long", _PIECE_BITS + _are_many(operands.sizes)
    # What is cut has at least two pieces, and so has what is cut again.
    cuts, cuts_again = (
        not isinstance(items, int) or items >= 2 * length for length in (piece, piece * _TOGETHER)
    )
    slots = ceil_div(items, piece) if cuts else 0
    rows = operands.sizes.destinations
    mean = "true" if operands.problem.reduces.needs_count else "false"
    first = str(item_bytes(operands.problem.data_dtype) >= _READ_FIRST_BYTES).lower()
    common = "P, Key, {lanes}, {vector_and_whole}"
    target = "output, out" if operands.data is None else "output, data"
    _, lanes, tiles = _shape(operands)

    def step(call: str, blocks: Any, of: int, overlaps: bool = True) -> None:
        more = {**arguments, "slots": ("long long", slots), "tiles": ("long long", tiles)}
        _launch(operands, text, more, call, blocks, of, overlaps)

    def blocks_of(teams: Any) -> Any:
        return ceil_div(teams * tiles * lanes, threads)

    step(
        f"sum_updates<{common}, {mean}, {first}>(pieces, {target}, updates, keys, begins, ends, "
        "items, sizes, longest, int(bits), slots, tiles);",
        blocks_of(slots + rows),
        threads,
        few_bytes(operands),
    )
    if cuts_again:
        step(
            f"sum_together<{common}>(together, pieces, keys, begins, ends, sizes, longest, "
            "int(bits), tiles);",
            blocks_of(ceil_div(items, piece * _TOGETHER)),
            threads,
        )
    if cuts:
        step(
            f"write_long<{common}, {mean}>(pieces, together, {target}, begins, ends, sizes, "
            "longest, int(bits), tiles);",
            ceil_div(rows, _LONG_ROWS) * tiles,
            _LONG_ROW_THREADS,
        )


def _launch(
    operands: Operands,
    text: str,
    arguments: sorting.Arguments,
    call: str,
    blocks: Any,
    threads: int,
    overlaps: bool,
) -> None:
    """Launch a templated call with vectors, or element by element if tensors are not aligned."""
    vector, lanes, _ = _shape(operands)
    # Threads that share a logit have the same columns also where vectors are no single accesses.
    sums = operands.problem.softmax and operands.updates.term is not None
    single = f"{vector}, false" if sums else "1, true"
    tensors = ("output", "updates") if operands.data is None else ("output", "updates", "data")
    whole = call.format(lanes=lanes, vector_and_whole=f"{vector}, true")
    text += f"  if ({aligned_to(vector, *tensors)})\n    {whole}\n"
    text += f"  else\n    {call.format(lanes=lanes, vector_and_whole=single)}"
    halves = operands.problem.data_dtype in HALVES
    most = _SUMMING_THREADS_OF_HALVES if halves else _SUMMING_THREADS
    together = most // threads if sums else 0
    launch(
        operands,
        ("segmented",),
        text,
        blocks,
        threads,
        arguments,
        owns=True,
        together=together,
        overlaps=overlaps,
    )


def _shape(operands: Operands) -> tuple[int, int, Any]:
    """The elements that a thread has at a time, the threads of a row, and the parts of a row."""
    problem, sizes = operands.problem, operands.sizes
    vector = widest_vector(problem)
    if not problem.softmax:
        return (vector, *lanes_and_parts(problem, sizes, vector))
    weighted = WeightedRows(operands.updates, sizes.count)
    vector = weighted.vector(vector)
    if operands.updates.term is None:
        return (vector, *lanes_and_parts(problem, sizes, vector))
    threads, lanes = weighted.heads * weighted.sharing(vector), 1
    while lanes < min(threads, WARP):
        lanes *= 2
    return vector, lanes, ceil_div(threads, lanes)
