"""Loops and index arithmetic that the CPU implementations share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.operands import Operands
from tvm_scatter.emit.wrapping import kept_apart
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, ceil_div

#: With fewer elements to move, starting the worker threads costs more than it saves.
SERIAL_WORK = 16384
#: Elements that one task of a copy writes.
COPY_TASK = 65536
#: A copy works on this many pages at a time, in pieces of two cache lines.
_STREAMS = 8
_PAGE_BYTES = 4096
_PIECE_BYTES = 128


def int64(value: Any) -> Any:
    """A number or an integer expression as int64."""
    if isinstance(value, int):
        return tirx.IntImm("int64", value)
    return value if str(value.ty.dtype) == "int64" else tirx.Cast("int64", value)


def serial(count: Any) -> Any:
    """A loop over ``count`` positions, with an int64 variable."""
    return T.serial(int64(count))


def minimum(left: Any, right: Any) -> Any:
    """The smaller of two numbers or expressions."""
    if isinstance(left, int) and isinstance(right, int):
        return min(left, right)
    return tirx.min(int64(left), int64(right))


def maximum(left: Any, right: Any) -> Any:
    """The larger of two numbers or expressions."""
    if isinstance(left, int) and isinstance(right, int):
        return max(left, right)
    return tirx.max(int64(left), int64(right))


def for_each(count: Any, work: Any, body: Callable[[Any], None]) -> None:
    """Run ``body`` for each task, in parallel if there is enough work.

    Parameters
    ----------
    count : int or expression
        Number of tasks.
    work : int or expression
        Elements that all tasks together move. If it is symbolic, the generated code decides at run
        time. ``None`` always starts the threads; then the loop is compiled only once.
    """

    def in_one_thread() -> None:
        with serial(count) as task:
            body(task)

    def in_all_threads() -> None:
        with T.parallel(int64(count)) as task:
            body(task)

    if isinstance(count, int) and count <= 1:
        in_one_thread()
    elif work is None:
        in_all_threads()
    elif isinstance(work, int):
        (in_one_thread if work <= SERIAL_WORK else in_all_threads)()
    else:
        with T.If(work <= int64(SERIAL_WORK)):
            with T.Then():
                in_one_thread()
            with T.Else():
                in_all_threads()


def for_each_chunk(size: Any, chunk: Any, work: Any, body: Callable[[Any, Any], None]) -> None:
    """Cut ``size`` positions into chunks; ``body`` gets the start and the length of each."""

    for_each(ceil_div(size, chunk), work, lambda c: body(*chunk_bounds(c, size, chunk)))


def chunk_bounds(c: Any, size: Any, chunk: Any) -> tuple[Any, Any]:
    """The start and the length of chunk ``c`` of ``size`` positions; the last one may be short."""
    start = T.bind(c * chunk)
    return start, T.bind(int64(minimum(size - start, chunk)))


def small_buffer(size: Any, dtype: str) -> Any:
    """A buffer of a task, for a few elements.

    Of this scope TVM puts what takes less than 1024 bytes on the stack, and compilers into
    registers. What is ``"local"`` it allocates at each call, whatever the size.
    """
    return T.alloc_buffer((size,), dtype, scope="global")


def settle(value: Any) -> Any:
    """Evaluate an integer expression here, and store it in a buffer.

    TVM substitutes bound expressions into each other and simplifies the result. That takes minutes
    if divisors are expressions. A value loaded from a buffer is not substituted.
    """
    if isinstance(value, int):
        return value
    cell = small_buffer(1, "int64")
    T.buffer_store(cell, int64(value), [0])
    return T.bind(cell[0])


def thread_count() -> Any:
    """The number of worker threads, read at run time."""
    return settle(tirx.Cast("int64", T.call_packed("runtime.NumThreads")))


def copy_data(operands: Operands) -> None:
    """Emit ``out = data``; nothing if the problem is in place."""
    if operands.data is None:
        return
    size = operands.sizes.data_size
    for_each_chunk(size, COPY_TASK, size, lambda start, length: copy_range(operands, start, length))


def copy_range(operands: Operands, start: Any, length: Any) -> None:
    """Emit ``out = data`` for ``length`` elements from ``start`` on, in one thread.

    Several pages are copied at the same time. The processor prefetches within a page and stops at
    its end. With several streams, some are always in the middle of a page.
    """
    out, data = operands.out, operands.data
    itemsize = item_bytes(operands.problem.data_dtype)
    page, piece = _PAGE_BYTES // itemsize, _PIECE_BYTES // itemsize
    block = page * _STREAMS

    def copy(first: Any, size: Any) -> None:
        with serial(size) as i:
            T.buffer_store(out, data[first + i], [first + i])

    # TVM has no vectors of booleans.
    if (isinstance(length, int) and length < block) or operands.problem.data_dtype == "bool":
        copy(start, length)
        return
    blocks = T.bind(tirx.truncdiv(int64(length), int64(block)))
    with serial(blocks) as b:
        with serial(page // piece) as p:
            for stream in range(_STREAMS):
                first = T.bind(start + b * block + stream * page + p * piece)
                with T.vectorized(piece) as lane:
                    T.buffer_store(out, data[first + lane], [first + lane])
    done = T.bind(blocks * block)
    copy(T.bind(start + done), length - done)


def fill_zero(buffer: Any, size: Any) -> None:
    """Set the first ``size`` entries of a buffer to zero."""

    def fill(start: Any, length: Any) -> None:
        with serial(length) as i:
            T.buffer_store(buffer, tirx.const(0, str(buffer.dtype)), [start + i])

    for_each_chunk(size, COPY_TASK, size, fill)


def refusal_of_sizes(problem: ScatterProblem) -> str | None:
    """Why buckets cannot be laid out at compile time; ``None`` if they can."""
    if not problem.is_static:
        return "the sizes must be known"
    if not (problem.index_batch or problem.batch.is_one):
        return "several batches share their indices"
    return None


def key_count(problem: ScatterProblem, sizes: Sizes) -> Any:
    """The number of distinct keys, by which items are sorted or counted.

    Unlike in ``destinations``, batches that share one index share its keys.
    """
    keys = sizes.extent
    if problem.index_batch:
        keys = sizes.batch * keys
    return keys * sizes.slice if problem.index_slice else keys


def item_count(problem: ScatterProblem, sizes: Sizes) -> Any:
    """The number of items (indices read). Batches that share one index share its items."""
    items = sizes.count
    if problem.index_batch:
        items = sizes.batch * items
    return items * sizes.slice if problem.index_slice else items


def counter_dtype(problem: ScatterProblem) -> str:
    """The type that counts and numbers items: 32 bits if they certainly suffice."""
    items = problem.items
    small = items.is_static and items.constant < 2**31 - 1
    return "int32" if small else "int64"


def index_place(operands: Operands, item: Any) -> tuple[Any, Any]:
    """Read the index of an item: its place along the scatter axis, and whether it is in bounds."""
    problem = operands.problem
    components = len(problem.extents)
    place: Any = None
    valid: Any = tirx.const(True, "bool")
    for component, extent in enumerate(operands.sizes.extents):
        if problem.interleaved:
            entry = operands.indices[0][item * components + component]
        else:
            entry = operands.indices[component][item]
        index = T.bind(int64(entry))
        if problem.wrap_negative:
            index = T.bind(tirx.Select(index < 0, index + extent, index))
        # Under "raise" a check has run before, so all indices are good.
        if problem.bounds == "drop":
            valid = tirx.all(valid, index >= 0, index < kept_apart(extent))
        place = index if place is None else T.bind(place * extent + index)
    return place, valid


def item_number(operands: Operands, b: Any, k: Any, s: Any) -> Any:
    """The item of update (b, k, s): the position of its index."""
    problem, sizes = operands.problem, operands.sizes
    item = b * sizes.count + k if problem.index_batch else k
    return item * sizes.slice + s if problem.index_slice else item


def key_number(operands: Operands, b: Any, place: Any, s: Any) -> Any:
    """The key of a destination, in [0, key_count)."""
    problem, sizes = operands.problem, operands.sizes
    key = b * sizes.extent + place if problem.index_batch else place
    return key * sizes.slice + s if problem.index_slice else key


def out_position(operands: Operands, b: Any, place: Any, s: Any) -> Any:
    """The position in ``out`` of (b, place, s)."""
    sizes = operands.sizes
    return (b * sizes.extent + place) * sizes.slice + s


def key_position(operands: Operands, key: Any, b: Any, s: Any) -> Any:
    """The position in ``out`` of a key; ``b`` and ``s`` are used where the index does not vary."""
    problem, sizes = operands.problem, operands.sizes
    position = key if problem.index_slice else key * sizes.slice + s
    if problem.index_batch:
        return position
    return b * (sizes.extent * sizes.slice) + position


def item_coordinates(operands: Operands, item: Any) -> tuple[Any, Any, Any]:
    """The batch, count and slice coordinates of an item; 0 where the index does not vary."""
    problem, sizes = operands.problem, operands.sizes
    b = s = int64(0)
    if problem.index_slice:
        width = int64(maximum(sizes.slice, 1))
        s, item = T.bind(tirx.truncmod(item, width)), T.bind(tirx.truncdiv(item, width))
    if problem.index_batch:
        count = int64(maximum(sizes.count, 1))
        b, item = T.bind(tirx.truncdiv(item, count)), T.bind(tirx.truncmod(item, count))
    return b, item, s


def ordered_item(operands: Operands, at: Any) -> Any:
    """The number of the update at a position of the order that is given.

    Whoever gives it may be wrong, so it is one of the items whatever the permutation holds.
    """
    if operands.problem.in_order:
        return at
    last = int64(operands.sizes.items) - 1
    return tirx.max(tirx.min(int64(operands.ordering[0][at]), last), int64(0))


def update_position(operands: Operands, b: Any, k: Any, s: Any) -> Any:
    """The position of update (b, k, s) in the updates, which may be broadcast."""
    problem, sizes = operands.problem, operands.sizes
    position: Any = int64(0)
    if problem.update_batch:
        position = position + b
    if problem.update_count:
        position = position * sizes.count + k
    if problem.update_slice:
        position = position * sizes.slice + s
    return position


def workspace_view(operands: Operands, offset: Any, size: Any, dtype: str) -> Any:
    """A typed buffer inside the workspace, ``offset`` bytes from its start."""
    itemsize = item_bytes(dtype)
    return T.decl_buffer(
        (int64(size),), dtype, data=operands.workspace.data, elem_offset=int64(offset // itemsize)
    )
