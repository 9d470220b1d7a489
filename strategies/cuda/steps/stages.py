"""Launches before and after a reduction, which implementations share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, at_most, ceil_div, round_up
from tvm_scatter.selection.arithmetic import smaller
from tvm_scatter.selection.work import SECTOR_BYTES, Work
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import aligned_to, launch

from . import contention

THREADS = 256
_COPY_BYTES = device_constant("stages", "kCopyBytes")
#: The most blocks of a grid-stride loop, enough to fill any GPU several times.
_STRIDE_BLOCKS = 4096
#: What a small launch takes behind another, as a part of what a call of one launch takes.
_FOLLOWING = 0.6
#: Cycles of a multiprocessor for an element that may have to be divided by its count.
_DIVIDE_CYCLES = 0.3


def copy_data(operands: Operands) -> None:
    """Launch ``out = data``; nothing if the problem is in place."""
    if operands.data is None:
        return
    size = operands.sizes.data_size * item_bytes(operands.problem.data_dtype)
    launch(
        operands,
        ("stages",),
        "  copy_bytes(out, data, bytes);",
        blocks=ceil_div(size, THREADS * _COPY_BYTES),
        threads=THREADS,
        arguments={"bytes": ("long long", size)},
    )


def fill_output(operands: Operands) -> None:
    """Launch a fill of the output with the number that the problem begins with."""
    size = operands.sizes.data_size * item_bytes(operands.problem.data_dtype)
    launch(
        operands,
        ("stages",),
        "  fill_output<P>(out, sizes.data_size());",
        blocks=ceil_div(size, THREADS * _COPY_BYTES),
        threads=THREADS,
    )


def finish_output(operands: Operands) -> None:
    """Launch what follows: each element of the output is computed from what stands there."""
    vector = _COPY_BYTES // item_bytes(operands.problem.data_dtype)
    size = operands.sizes.data_size
    launch(
        operands,
        ("stages",),
        f"  if ({aligned_to(vector, 'output', 'out')})\n"
        f"    finish_output<P, {vector}>(output, out, sizes.data_size());\n"
        "  else\n"
        "    finish_output<P, 1>(output, out, sizes.data_size());",
        blocks=ceil_div(size, THREADS * vector),
        threads=THREADS,
    )


def stride_launch(
    operands: Operands,
    body: str,
    work: Any,
    headers: tuple[str, ...] = ("stages",),
    arguments: dict[str, tuple[str, Any]] | None = None,
    resolves_every_index: bool = False,
) -> None:
    """Launch a grid-stride loop over ``work`` pieces; see :func:`launch`."""
    blocks = at_most(ceil_div(work, THREADS), _STRIDE_BLOCKS)
    launch(
        operands,
        headers,
        body,
        blocks,
        THREADS,
        arguments,
        resolves_every_index=resolves_every_index,
    )


def count_bytes(problem: ScatterProblem, sizes: Sizes) -> Any:
    """Workspace for the number of updates at each destination; only a mean needs it."""
    return round_up(sizes.destinations * 4, 16) if problem.reduces.needs_count else 0


def around(operands: Operands, reduce_into_out: Callable[[], None], counts_at: Any = 0) -> None:
    """Emit a reduction into ``out``, with the launches that the problem needs before and after it.

    Parameters
    ----------
    reduce_into_out : callable
        Emits the launches that combine every update into ``out``.
    counts_at : int or expression
        The offset of the counts of ``mean`` in the workspace, in bytes.
    """
    problem, sizes = operands.problem, operands.sizes
    if problem.starts_from_identity:
        stride_launch(
            operands,
            "  reset_touched<P>(out, indices, sizes);",
            sizes.items * sizes.width,
            resolves_every_index=True,
        )
    reduce_into_out()
    if not problem.reduces.needs_count:
        return
    counts = "  uint32* const counts = reinterpret_cast<uint32*>(workspace + counts_at);\n"
    arguments = {"counts_at": ("long long", counts_at)}
    stride_launch(
        operands,
        counts + "  fill(counts, 0u, int64(sizes.destinations()));",
        sizes.destinations,
        arguments=arguments,
    )
    stride_launch(
        operands,
        counts + "  count_updates<P>(counts, indices, sizes);",
        sizes.items,
        arguments=arguments,
    )
    stride_launch(
        operands,
        counts + "  divide_by_counts<P>(out, counts, sizes);",
        sizes.data_size,
        arguments=arguments,
    )


def around_launches(work: Work) -> float:
    """Launches that reset touched places to the identity, and that divide by counts.

    Each counts as a part of one: they follow others, so that no call begins or ends with them.
    """
    problem = work.problem
    return _FOLLOWING * (problem.starts_from_identity + 3 * problem.reduces.needs_count)


def around_time(work: Work) -> Any:
    """The time of these launches, beyond that of launching."""
    problem, total = work.problem, 0.0
    if problem.starts_from_identity:
        single = problem.width.is_one
        touched = contention.warp_sectors(work) if single else work.items * work.row_sectors
        total = total + work.streams(work.index_bytes) + work.sectors(touched)
        total = total + work.cycles(contention.of_stores(work))
    if problem.reduces.needs_count:
        divided = smaller(work.touched * work.row_sectors * SECTOR_BYTES, work.data_bytes)
        total = total + work.streams(8 * work.destinations + 2 * divided)
        total = total + work.streams(work.index_bytes) + work.sectors(work.items)
        total = total + work.cycles(contention.of_numbers(work, "uint32"))
        # Every element is looked at, for whether it has to be divided.
        total = total + work.cycles(_DIVIDE_CYCLES * work.data_size / work.machine.multiprocessors)
    return total
