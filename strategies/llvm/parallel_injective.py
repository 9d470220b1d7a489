"""Parallel-injective: each worker owns a part of the output and applies what falls into it."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm_scatter.strategies.llvm import loops, ordered

from tvm_scatter.emission import Operands
from tvm_scatter.problem import ScatterProblem
from tvm_scatter.sizes import Sizes, ceil_div
from tvm_scatter.strategy import Config, Implementation

#: Columns are divided no finer than this, so that two workers seldom share a cache line.
_LEAST_BLOCK_BYTES = 128


class ParallelInjective(Implementation):
    """Batches, else blocks of columns, else ranges of destinations, one for each worker.

    Unique updates are divided as they are: no two of them meet. All others keep their order at
    every element, so the result does not depend on the number of workers.
    """

    name = "parallel_injective"
    deterministic = True
    summary = "many updates, or a large copy"

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config) -> Any:
        return ordered.counts_bytes(problem, sizes)

    def emit(self, operands: Operands, config: Config) -> None:
        problem, sizes = operands.problem, operands.sizes
        counts = ordered.counts_view(operands)
        loops.copy_data(operands)
        if counts is not None:
            loops.fill_zero(counts, loops.key_count(problem, sizes))
        if problem.unique:
            _apply_unique(operands)
        else:
            _apply_by_owner(operands, counts)
        if counts is not None:
            ordered.divide_by_counts(operands, counts)


def _apply_unique(operands: Operands) -> None:
    sizes = operands.sizes
    work = sizes.batch * sizes.count * sizes.slice
    chunk = loops.maximum(1, ceil_div(sizes.count, 256))

    def apply(start: Any, length: Any) -> None:
        with loops.serial(sizes.batch) as b:
            share = ordered.Share(
                batch=b, column=loops.int64(0), columns=sizes.slice, updates=(start, length)
            )
            ordered.apply_updates(operands, share, None)

    loops.for_each_chunk(sizes.count, chunk, work, apply)


def _apply_by_owner(operands: Operands, counts: Any) -> None:
    problem, sizes = operands.problem, operands.sizes
    work = sizes.batch * sizes.count * sizes.slice
    if isinstance(work, int) and work <= loops.SERIAL_WORK:
        with loops.serial(sizes.batch) as b:
            whole = ordered.Share(batch=b, column=loops.int64(0), columns=sizes.slice)
            ordered.apply_updates(operands, whole, counts)
        return
    batch = loops.int64(loops.maximum(sizes.batch, 1))
    threads = loops.thread_count()
    # With few batches for each thread, dividing these alone would leave some threads idle.
    wanted = tirx.Select(batch >= threads * 4, loops.int64(1), threads)
    most = loops.maximum(1, ceil_div(sizes.slice, _LEAST_BLOCK_BYTES // loops.itemsize(problem)))
    blocks = loops.settle(loops.minimum(wanted, most))
    columns = loops.settle(ceil_div(loops.int64(sizes.slice), blocks))
    ranges = loops.settle(tirx.max(ceil_div(threads, batch * blocks), loops.int64(1)))
    places = loops.settle(ceil_div(loops.int64(sizes.extent), ranges))

    def apply(task: Any) -> None:
        # The settled sizes are positive: truncating division is exact and needs no correction.
        r = loops.settle(tirx.truncmod(task, ranges))
        rest = loops.settle(tirx.truncdiv(task, ranges))
        first = loops.settle(tirx.truncmod(rest, blocks) * columns)
        low = loops.settle(r * places)
        share = ordered.Share(
            batch=loops.settle(tirx.truncdiv(rest, blocks)),
            column=first,
            columns=loops.settle(tirx.max(loops.minimum(sizes.slice - first, columns), 0)),
            places=(low, loops.settle(low + places)),
        )
        ordered.apply_updates(operands, share, counts)

    tasks = loops.settle(sizes.batch * blocks * ranges)
    loops.for_each(tasks, work, apply)
