"""Common index: orders an index once for all lines that share it, then writes every line once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, at_least, at_most, ceil_div
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.selection.arithmetic import larger, smaller
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import Terms, Work
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import launch
from tvm_scatter.strategies.cuda.codegen.source import accumulate_bytes
from tvm_scatter.strategies.cuda.codegen.target import dynamic_bytes, shared_memory_limit

from .machines import multiprocessors
from .steps import sorting, stages

_THREADS = device_constant("common_index", "kLineThreads")
_LONG_RUN = device_constant("common_index", "kLongRun")
#: Static shared memory of a block that lists a chunk.
_RANK_BYTES = 2 * (_THREADS // 32) * (1 << device_constant("common_index", "kDigitBits")) + 512
#: Entries of a thread, the most first: as many as shared memory can hold the values of.
_PER_THREAD = (20, 10, 5, 2)
_LEAST_BITS = 6
#: The part of a chunk that a bucket should fill. Buckets differ, and most should be a single chunk.
_FILL = 0.8
#: A line of a bucket for each multiprocessor so many times, so that all are busy to the end.
_TURNS = 8
_MOST_LINES = 8
_FIELDS = {
    "begins": "uint32",
    "entries": "uint32",
    "positions": "unsigned short",
    "ends": "unsigned short",
}
_SECTOR = 32
#: Estimates: how much faster the cache delivers sectors than memory does; cycles of a
#: multiprocessor for each value that it adds up, and of a warp for each of a long run.
_CACHE_GAIN, _CYCLES_EACH, _CYCLES_OF_HOT = 1.5, 0.4, 1.5


class CommonIndex(Implementation):
    """Chunks of a bucket's entries are ordered in shared memory; all lines are read by them.

    A sum adds up the chunks in the order of the index, and so has the same bits on every run.
    """

    name = "common_index"
    accumulates_wide = True
    deterministic = True
    fuses = True
    fills = True
    finishes = True
    summary = "many lines that share one index, such as the channels of an image"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        if problem.reduces.is_store:
            return "a plain update has nothing to reduce"
        if problem.batch.is_one:
            return "there is one batch"
        if not problem.shares_index:
            return "the index is not the same for all batches"
        if not _fitting(problem, target):
            return "a block has too little shared memory for the values of a chunk"
        return sorting.refuse_too_many(_line(problem))

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        per_thread = _fitting(problem, target)[0]
        most = _most_bits(per_thread)
        preferred = _bucket_bits(problem, per_thread, target)
        near = range(max(preferred - 1, _LEAST_BITS), min(preferred + 1, most) + 1)
        return {"bucket_bits": (preferred, *(bits for bits in near if bits != preferred))}

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        return _Plan(problem, sizes, config, target).layout.total

    def cost(self, work: Work, config: Config) -> Terms:
        buckets = larger(work.extent / (1 << config["bucket_bits"]), 1.0)
        passes = sorting.expected_passes(buckets)
        # A bucket has one of so many entries of a line; the others of a sector are read in vain.
        read = smaller(work.element * buckets, _SECTOR / _CACHE_GAIN)
        apart = smaller(work.width, _SECTOR / work.element)
        read = larger(read, work.element * apart) * (1 + work.missed(work.count * work.row_bytes))
        lines = work.batch * work.width
        key = 4 if work.problem.is_static else 8
        listed = work.count * (key * (2 + 5 * passes) + 10)
        added = work.items * work.width + work.data_size
        return {
            "launches": work.launches(4 + 3 * passes),
            "order": work.streams(work.index_bytes + listed),
            "lists": work.streams(6 * (work.count + work.extent) * lines / _MOST_LINES),
            "values": work.streams(work.items * work.width * larger(read, float(work.element))),
            "writes": work.streams(work.written_bytes * apart),
            "sums": work.cycles(
                _CYCLES_EACH * added / smaller(buckets * lines, work.machine.multiprocessors)
            ),
            "hot place": work.cycles(_CYCLES_OF_HOT * work.hottest * work.turns(lines)),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        plan = _Plan(operands.problem, operands.sizes, config, operands.target)
        _list_index(operands, plan)
        _reduce(operands, plan)


def _line(problem: ScatterProblem) -> ScatterProblem:
    """The problem with the first batch alone: its index is that of all."""
    return replace(problem, batch=SymbolicSize())


def _line_sizes(sizes: Sizes) -> Sizes:
    return replace(
        sizes,
        batch=1,
        items=sizes.count,
        destinations=sizes.extent,
        data_size=sizes.slab,
        update_size=sizes.count * sizes.slice,
    )


def _most_bits(per_thread: int) -> int:
    """The logarithm of the most places of a bucket: no more than its chunks have entries."""
    return (per_thread * _THREADS).bit_length() - 1


def _room_bytes(problem: ScatterProblem, per_thread: int, bits: int) -> int:
    """Bytes of shared memory of a block that reduces lines: of ``LineRoom``."""
    chunk, places = per_thread * _THREADS, 1 << bits
    of_entries = chunk * (item_bytes(problem.data_dtype) + 2) + chunk // _LONG_RUN * 2
    return of_entries + places * (accumulate_bytes(problem.data_dtype) + 4 + 2) + 64


def _fitting(problem: ScatterProblem, target: Any) -> list[int]:
    """The numbers of entries of a thread for which shared memory suffices."""
    limit = shared_memory_limit(target)
    return [n for n in _PER_THREAD if _room_bytes(problem, n, _most_bits(n)) <= limit]


def _bucket_bits(problem: ScatterProblem, per_thread: int, target: Any) -> int:
    """The logarithm of the number of places in a bucket."""
    most = _most_bits(per_thread)
    if not problem.is_static:
        return most - 1
    places, entries = problem.extent.constant, problem.count.constant
    lines = problem.batch.constant * problem.slice.constant
    full = int(_FILL * per_thread * _THREADS) * places // max(entries, 1)
    busy = places * lines // (_TURNS * multiprocessors(target))
    return min(max(min(full, busy).bit_length() - 1, _LEAST_BITS), most)


class _Plan:
    """The numbers of buckets and chunks, and the layout of the workspace."""

    def __init__(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> None:
        self.bits = config["bucket_bits"]
        self.per_thread = _fitting(problem, target)[0]
        self.chunk = self.per_thread * _THREADS
        self.buckets = ceil_div(sizes.extent, 1 << self.bits)
        self.slots = self.buckets + sizes.count // self.chunk
        layout = self.layout = sorting.Layout()
        sorting.add_regions(layout, _line(problem), _line_sizes(sizes))
        layout.add("begins", (self.buckets + 1) * 4)
        layout.add("entries", sizes.count * 4)
        layout.add("positions", sizes.count * 2)
        layout.add("ends", self.slots * (2 << self.bits))

    def declarations(self) -> tuple[str, sorting.Arguments]:
        """A C++ declaration of ``lists``, and its arguments."""
        text = "".join(self.layout.pointer(name, kind) for name, kind in _FIELDS.items())
        text += f"  const BucketLists lists{{{', '.join(_FIELDS)}, uint32(buckets)}};\n"
        return text, {**self.layout.arguments(*_FIELDS), "buckets": ("long long", self.buckets)}


def _list_index(operands: Operands, plan: _Plan) -> None:
    """List the entries of the index by bucket and chunk."""
    line = replace(operands, problem=_line(operands.problem), sizes=_line_sizes(operands.sizes))
    layout, bits = plan.layout, plan.bits
    sorting.assert_not_too_many(line)
    stages.stride_launch(
        line,
        sorting.KEY
        + layout.pointer("keys0", "Key")
        + f"  make_bucket_keys<P, Key>(keys0, Key(buckets) << {bits}, indices, sizes);",
        line.sizes.items,
        ("common_index",),
        {**layout.arguments("keys0"), "buckets": ("long long", plan.buckets)},
        resolves_every_index=True,
    )
    sorting.order_by_keys(line, layout, plan.buckets, bits)
    ordered, of_ordered = sorting.sorted_lists(line, layout, plan.buckets)
    lists, of_lists = plan.declarations()
    arguments = {**of_ordered, **of_lists}
    stages.stride_launch(
        line,
        ordered + lists + f"  find_buckets<{bits}>(lists, keys, sizes.items());",
        plan.buckets + 1,
        ("common_index",),
        arguments,
    )
    launch(
        line,
        ("common_index",),
        ordered + lists + f"  list_chunk<{bits}, {plan.per_thread}>(lists, keys, items, shared);",
        plan.slots,
        _THREADS,
        arguments,
        dynamic_bytes(plan.chunk * 4, _RANK_BYTES),
    )


def _reduce(operands: Operands, plan: _Plan) -> None:
    """Reduce all lines by the lists."""
    problem, sizes = operands.problem, operands.sizes
    lists, arguments = plan.declarations()
    lines = sizes.batch * sizes.slice
    enough = _TURNS * multiprocessors(operands.target)
    each = at_least(at_most(lines * plan.buckets // enough, _MOST_LINES), 1)
    mean = "true" if problem.reduces.needs_count else "false"
    source = "out" if operands.data is None else "data"
    launch(
        operands,
        ("common_index",),
        lists
        + f"  reduce_lines<P, {plan.bits}, {plan.per_thread}, {mean}>(output, {source}, lists, "
        "updates, sizes, lines_each, shared);",
        plan.buckets * ceil_div(lines, each),
        _THREADS,
        {**arguments, "lines_each": ("long long", each)},
        dynamic_bytes(_room_bytes(problem, plan.per_thread, plan.bits), 0),
    )
