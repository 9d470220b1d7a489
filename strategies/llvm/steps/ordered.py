"""Applies updates in order; each worker owns a part of the output.

The owner of an element applies all of its updates. So there are no atomics and no races, and the
bits do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.computed_updates import element
from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, ceil_div

from . import combiners, loops, values

#: The fewest columns of a block, so that two workers seldom share a cache line.
LEAST_BLOCK_BYTES = 128
#: An output of no more bytes has one owner. Two would write to the same lines of the cache, and
#: each would wait for the other: 60 ns for an update.
FEW_BYTES = 512
#: With this many batches and blocks of columns, places need not be divided as well.
_ENOUGH_SHARES = 16
#: Updates that are filtered at a time for those in a range of places.
_FILTER = 1024


@dataclass(frozen=True)
class Share:
    """The part of the output of one worker: a batch, a block of columns and a range of places.

    Attributes
    ----------
    batch, column : expression
        The batch and the first column.
    columns : int or expression
        The number of columns.
    places : pair of expression or None
        The half-open range of places; ``None`` for all of them.
    updates : pair of expression or None
        The first update to apply and the number of updates; ``None`` for all of them.
    """

    batch: Any
    column: Any
    columns: Any
    places: tuple[Any, Any] | None = None
    updates: tuple[Any, Any] | None = None


def counts_bytes(problem: ScatterProblem, sizes: Sizes) -> Any:
    """Bytes of workspace for the number of updates of each element, which a mean divides by."""
    if not problem.reduces.needs_count or problem.unique:
        return 0
    itemsize = 4 if loops.counter_dtype(problem) == "int32" else 8
    return loops.key_count(problem, sizes) * itemsize


def counts_view(operands: Operands) -> Any:
    """The counts in the workspace, or ``None`` if none are needed."""
    problem = operands.problem
    if not problem.reduces.needs_count or problem.unique:
        return None
    keys = loops.key_count(problem, operands.sizes)
    return loops.workspace_view(operands, 0, keys, loops.counter_dtype(problem))


def scatter(operands: Operands, divide_places: bool) -> None:
    """Compute the problem: each worker owns batches, else columns, else ranges of places.

    Parameters
    ----------
    divide_places : bool
        Whether to divide the places if there are too few batches and columns for the workers. Each
        worker then reads every index.
    """
    problem, sizes = operands.problem, operands.sizes
    counts = counts_view(operands)
    most = loops.maximum(1, sizes.slice // (LEAST_BLOCK_BYTES // item_bytes(problem.data_dtype)))
    size = sizes.data_size
    in_few_lines = isinstance(size, int) and size * item_bytes(problem.data_dtype) <= FEW_BYTES
    many = isinstance(sizes.batch, int) and sizes.batch >= _ENOUGH_SHARES
    by_batch = many and most == 1 and not in_few_lines
    if not by_batch:
        loops.copy_data(operands)
    if counts is not None:
        loops.fill_zero(counts, loops.key_count(problem, sizes))
    work = sizes.batch * sizes.count * sizes.slice
    if by_batch:
        _copy_and_apply(operands, counts)
    elif in_few_lines or (isinstance(work, int) and work <= loops.SERIAL_WORK):
        _divide(operands, counts, blocks=1, ranges=1, in_one_thread=True)
    else:
        threads = loops.thread_count()
        batch = loops.int64(loops.maximum(sizes.batch, 1))
        blocks: Any = 1
        if not (isinstance(most, int) and most == 1):
            # A few batches for each thread would not be shared evenly.
            wanted = tirx.Select(batch >= threads * 4, loops.int64(1), threads)
            blocks = loops.settle(loops.minimum(wanted, most))
        shares = sizes.batch * most
        if divide_places and not (isinstance(shares, int) and shares >= _ENOUGH_SHARES):
            ranges = loops.settle(tirx.max(tirx.truncdiv(threads, batch * blocks), 1))
            with T.If(tirx.all(ranges > 1, work > loops.SERIAL_WORK)):
                with T.Then():
                    _divide(operands, counts, blocks, ranges)
                with T.Else():
                    _divide(operands, counts, blocks, ranges=1)
        else:
            _divide(operands, counts, blocks, ranges=1)
    if counts is not None:
        divide_by_counts(operands, counts)


def _copy_and_apply(operands: Operands, counts: Any) -> None:
    """Copy and update one batch at a time, so that its data is still in the cache."""
    sizes = operands.sizes
    slab = sizes.extent * sizes.slice

    def apply(batch: Any) -> None:
        if operands.data is not None:
            loops.copy_range(operands, T.bind(batch * slab), slab)
        apply_updates(operands, Share(batch, loops.int64(0), sizes.slice), counts)

    loops.for_each(sizes.batch, sizes.data_size + sizes.batch * sizes.count * sizes.slice, apply)


def _divide(
    operands: Operands, counts: Any, blocks: Any, ranges: Any, in_one_thread: bool = False
) -> None:
    """Apply all updates in parallel over batches, blocks of columns and ranges of places."""
    sizes = operands.sizes
    in_blocks = not (isinstance(blocks, int) and blocks == 1)
    in_ranges = not (isinstance(ranges, int) and ranges == 1)
    columns = loops.settle(ceil_div(loops.int64(sizes.slice), blocks)) if in_blocks else sizes.slice
    width = loops.settle(ceil_div(loops.int64(sizes.extent), ranges)) if in_ranges else None

    def apply(task: Any) -> None:
        batch, column, own, places = task, loops.int64(0), columns, None
        # All numbers are non-negative, so truncating division, which is cheaper, equals floor
        # division.
        if in_ranges:
            low = loops.settle(tirx.truncmod(batch, ranges) * width)
            places = low, loops.settle(low + width)
            batch = loops.settle(tirx.truncdiv(batch, ranges))
        if in_blocks:
            column = loops.settle(tirx.truncmod(batch, blocks) * columns)
            own = loops.settle(tirx.max(loops.minimum(sizes.slice - column, columns), 0))
            batch = loops.settle(tirx.truncdiv(batch, blocks))
        apply_updates(operands, Share(batch, column, own, places), counts)

    tasks = sizes.batch * blocks * ranges
    tasks = tasks if isinstance(tasks, int) else loops.settle(tasks)
    work = None if in_ranges else sizes.batch * sizes.count * sizes.slice
    loops.for_each(tasks, 0 if in_one_thread else work, apply)


def apply_updates(operands: Operands, share: Share, counts: Any) -> None:
    """Apply all updates of a share, in order."""
    problem = operands.problem
    starts_empty = problem.starts_from_identity
    if starts_empty and not problem.unique:
        start = values.start_value(problem.reduces, problem.data_dtype)
        _visit(operands, share, lambda at, *_: T.buffer_store(operands.out, start, [at]))

    def apply(at: Any, update: Any, column: Any) -> None:
        value = element(operands.updates, update, column, operands.sizes.slice)
        value = values.convert(value, problem.data_dtype)
        if starts_empty and problem.unique:
            value = values.alone(problem.reduces, problem.data_dtype, value)
        else:
            value = combiners.combine(problem.reduces, problem.data_dtype, operands.out[at], value)
            if problem.reduces.needs_count and problem.unique:
                value = values.mean(problem.data_dtype, value, tirx.IntImm("int32", 2))
        T.buffer_store(operands.out, value, [at])

    _visit(operands, share, apply, counts)


def _visit(
    operands: Operands,
    share: Share,
    apply: Callable[[Any, Any, Any], None],
    counts: Any = None,
) -> None:
    """Call ``apply(out position, position of the update, column after it)`` for every update."""
    problem, sizes = operands.problem, operands.sizes
    b = share.batch

    def one(k: Any, s: Any, columns: Any) -> None:
        item = loops.item_number(operands, b, k, s)
        place, accepted = loops.index_place(operands, item)
        if share.places is not None and problem.index_slice:
            accepted = tirx.all(accepted, place >= share.places[0], place < share.places[1])
        with T.If(accepted):
            with T.Then():
                out = T.bind(loops.out_position(operands, b, place, s))
                update = T.bind(loops.update_position(operands, b, k, s))
                with loops.serial(columns) as c:
                    apply(out + c, update, c if problem.update_slice else 0)
                if counts is not None:
                    _count(operands, share, counts, loops.key_number(operands, b, place, s))

    start, count = share.updates or (0, sizes.count)
    if share.places is not None and not problem.index_slice:
        _filter(operands, share, count, lambda k: one(k, share.column, share.columns))
        return
    with loops.serial(count) as i:
        k = T.bind(start + i)
        if problem.index_slice:
            with loops.serial(share.columns) as c:
                one(k, share.column + c, 1)
        else:
            one(k, share.column, share.columns)


def _filter(operands: Operands, share: Share, count: Any, one: Callable[[Any], None]) -> None:
    """Call ``one`` for the updates in a share's range of places.

    A branch for each update would often be mispredicted. So the numbers of these updates are
    collected first, without a branch.
    """
    assert share.places is not None
    low, high = share.places
    accepted = loops.small_buffer(_FILTER, "int32")
    found = loops.small_buffer(1, "int32")

    def part(first: Any, length: Any) -> None:
        T.buffer_store(found, tirx.const(0, "int32"), [0])
        with loops.serial(length) as i:
            item = loops.item_number(operands, share.batch, first + i, share.column)
            place, valid = loops.index_place(operands, item)
            T.buffer_store(accepted, tirx.Cast("int32", i), [found[0]])
            inside = tirx.all(valid, place >= low, place < high)
            T.buffer_store(found, found[0] + tirx.Cast("int32", inside), [0])
        with loops.serial(tirx.Cast("int64", found[0])) as j:
            one(T.bind(first + accepted[j]))

    with loops.serial(ceil_div(count, _FILTER)) as c:
        first = T.bind(c * _FILTER)
        part(first, T.bind(loops.int64(loops.minimum(count - first, _FILTER))))


def _count(operands: Operands, share: Share, counts: Any, key: Any) -> None:
    """Count an update once, although several workers may apply columns of it."""
    problem = operands.problem
    counting: Any = tirx.const(True, "bool")
    if not problem.index_batch:
        counting = tirx.all(counting, share.batch == 0)
    if not problem.index_slice:
        counting = tirx.all(counting, share.column == 0)
    with T.If(counting):
        with T.Then():
            T.buffer_store(counts, counts[key] + tirx.const(1, str(counts.dtype)), [key])


def divide_by_counts(operands: Operands, counts: Any) -> None:
    """Divide sums by their counts, where there were updates."""
    problem, sizes = operands.problem, operands.sizes
    keys = loops.key_count(problem, sizes)

    def divide(start: Any, length: Any) -> None:
        with loops.serial(length) as i:
            key = T.bind(start + i)
            count = T.bind(counts[key])
            with T.If(count > 0):
                with T.Then():
                    if problem.include_self:
                        count = T.bind(count + tirx.const(1, str(counts.dtype)))
                    with loops.serial(1 if problem.index_batch else sizes.batch) as b:
                        with loops.serial(1 if problem.index_slice else sizes.slice) as s:
                            at = loops.key_position(operands, key, b, s)
                            total = operands.out[at]
                            T.buffer_store(
                                operands.out, values.mean(problem.data_dtype, total, count), [at]
                            )

    chunk = loops.settle(loops.maximum(1, ceil_div(keys, 256)))
    loops.for_each_chunk(keys, chunk, sizes.data_size, divide)
