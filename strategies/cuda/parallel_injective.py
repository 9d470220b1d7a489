"""Parallel-injective: all updates in parallel, with atomics if updates may share a destination."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.reductions import HALVES, item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, ceil_div
from tvm_scatter.problem.vectors import adds_vectors, needs_swaps, widest_vector
from tvm_scatter.selection.arithmetic import larger, smaller
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import LINE_BYTES, SECTOR_BYTES, Terms, Work
from tvm_scatter.strategies.cuda.codegen.launch import launch

from .machines import threads_at_a_time
from .steps import contention, stages

_MAX_LANES = 256
_ACCESS_BYTES = 16
#: At least and at most so many stores to an output of at most so many bytes were measured.
_MANY_STORES, _FEW_BYTES = (1 << 16, 1 << 22), 1 << 11
#: Of the time to read and write a sector the part that takes to read it.
_LOOKED_AT = 0.5


class ParallelInjective(Implementation):
    """A group of lanes for each index. Plain stores, or atomics for reductions.

    Integer sums and products, minima and maxima do not depend on the order and are bitwise
    reproducible; plain updates and floating-point sums with duplicate indices are not.
    """

    name = "parallel_injective"
    fuses = True
    summary = "unique indices, or duplicates spread over many destinations"

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        vector = widest_vector(problem)
        vectors = tuple(v for v in (16, 8, 4, 2, 1) if v <= vector)
        # Where updates seldom meet and nothing is copied first, more threads are sooner done.
        unroll = (1, 2, 4, 8) if _writes_apart(problem) else (2, 1, 4, 8)
        if problem.width.is_one:
            if problem.only_stores:
                if _stores_to_few(problem):
                    return {"vector": vectors, "unroll": (8, 4, 2, 1), "threads": (512, 256, 128)}
                return {"vector": vectors, "unroll": unroll, "threads": (256, 128, 512)}
            return {"vector": vectors, "unroll": (1, 2, 4, 8), "threads": (128, 256, 512)}
        if vector > 1 and _looks_at_vectors(problem):
            if problem.data_dtype in HALVES:
                # One compare-and-swap updates two elements, and rarely has to be repeated.
                first = (2, *(v for v in vectors if v != 2))
                return {"vector": first, "unroll": unroll, "threads": (256, 128, 512)}
            # More items per thread would take registers from other threads.
            return {"vector": vectors, "unroll": (1, 2, 4, 8), "threads": (256, 128, 512)}
        if not (problem.only_stores or adds_vectors(problem)):
            # The compare-and-swap loops of a vector's elements would wait for each other.
            return {"vector": vectors[::-1], "unroll": unroll, "threads": (256, 128, 512)}
        # If a row takes a whole block, two rows to a block keep more loads in flight.
        wide = lanes_for(problem, vector) == _MAX_LANES
        threads = (512, 256, 128) if wide else (256, 128, 512)
        return {"vector": vectors, "unroll": _unrolls(problem, vector, target), "threads": threads}

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        return stages.count_bytes(problem, sizes)

    def cost(self, work: Work, config: Config) -> Terms:
        problem, vector = work.problem, config["vector"]
        lanes = lanes_for(problem, work.vector)
        together = vector if problem.only_stores or adds_vectors(problem) else 1
        if problem.data_dtype == "bool":
            # Neighbours in a row are stored together, one by a thread.
            together = larger(smaller(work.width, float(_ACCESS_BYTES)), float(together))
        swaps = 3 if needs_swaps(problem) and not contention.stores(problem) else 1
        rows = not problem.width.is_one
        looks = 4.0 * work.update_size / vector if contention.looks_first(problem) and rows else 0.0
        # Each thread of a long row has many columns, and a few rows do not fill the machine.
        turns = larger(work.width / (lanes * work.vector), 1.0)
        if swaps > 1 and not (problem.width.is_one or _looks_at_vectors(problem)):
            # It compares and swaps one after the other; neighbours in a word make it repeat.
            in_a_word = max(4.0 / work.element, 1.0)
            turns = turns + in_a_word * larger(work.width / (lanes * vector), 1.0)
        return {
            "launches": work.launches(2 - problem.in_place + stages.around_launches(work)),
            "streams": work.streams(work.copied_bytes) + stages.around_time(work),
            # Reading them overlaps with what follows.
            "operands": work.streams(work.operand_bytes),
            "sectors": work.sectors(_accesses(work), work.data_bytes),
            "misses": _misses(work),
            "updates": work.sectors(contention.writes(work) * work.width / together * swaps)
            + work.cycles(looks / work.machine.multiprocessors),
            "hot updates": work.cycles(contention.in_memory(work, together)),
            "turns": work.cycles(700 + 300 * turns),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        stages.copy_data(operands)
        stages.around(operands, lambda: _reduce(operands, config))


def _writes_apart(problem: ScatterProblem) -> bool:
    """Whether few updates are written to the same place, and behind no copy or one of unique ones.

    With one update for each thread 44 problems of an H200 take 0.95 of the time with two.
    """
    if problem.unique:
        return True
    items, places = problem.items, problem.destinations
    known = items.is_static and places.is_static
    return problem.in_place and known and items.constant <= places.constant


def _stores_to_few(problem: ScatterProblem) -> bool:
    """Whether a great many elements are stored to a few sectors.

    A million to 256 places take 35 us with eight in flight and blocks of 512 threads, 44 with two.
    """
    if not problem.is_static:
        return False
    data_bytes = problem.data_size.constant * item_bytes(problem.data_dtype)
    least, most = _MANY_STORES
    return data_bytes <= _FEW_BYTES and least <= problem.items.constant <= most


def _unrolls(problem: ScatterProblem, vector: int, target: Any) -> tuple[int, ...]:
    """Items of a thread: few where the machine could have a thread for each of them at a time.

    One item is 1.06 to 1.1 times as fast as four in the mean where half of the threads would do (97
    records of an H200). Computed updates wait for more reads: 10 556 of 256 bytes take 7.5 us
    instead of 9.8.
    """
    if not problem.items.is_static:
        return (4, 1, 2, 8)
    needed = problem.items.constant * lanes_for(problem, vector)
    available = threads_at_a_time(target) // (1 if problem.fused else 2)
    if needed <= available:
        return (1, 2, 4, 8)
    return (2, 1, 4, 8) if needed <= 2 * available else (4, 1, 2, 8)


def _accesses(work: Work) -> Any:
    """Sectors that warps access."""
    if work.problem.width.is_one:
        return contention.warp_sectors(work)
    return work.items * work.row_sectors


def _misses(work: Work) -> Any:
    """The time that memory takes to serve what is not in the cache."""
    problem, part = work.problem, work.data_bytes / contention.rounds(work)
    # Sectors of a line come together.
    lines = smaller(work.items * larger(work.row_bytes / LINE_BYTES, 1.0), _accesses(work))
    random = work.misses(lines, part)
    if problem.only_stores and _fills_sectors(problem):
        return random
    # Of n accesses to s sectors, n s / (n + s) or some more meet one that none met before.
    sectors, accesses = work.data_bytes / SECTOR_BYTES, _accesses(work)
    first = accesses * sectors / larger(accesses + sectors, 1.0)
    # A copy leaves behind in the cache what fits.
    gone = 1.0 if problem.in_place else work.missed(work.data_bytes)
    first = first * (gone - work.missed(part)) / work.machine.missed_sectors
    # What is only looked at is not written back.
    return (random + first) * (_LOOKED_AT if contention.looks_first(problem) else 1.0)


def _fills_sectors(problem: ScatterProblem) -> bool:
    """Whether rows are whole sectors. Memory need not be read before they are stored."""
    row_bytes = problem.slice.constant * item_bytes(problem.data_dtype)
    return not problem.index_slice and row_bytes % SECTOR_BYTES == 0


def _looks_at_vectors(problem: ScatterProblem) -> bool:
    """Whether one vector load can show that several atomics are unnecessary (``looks_once``)."""
    dtype = problem.data_dtype
    return problem.reduces.is_extreme and (dtype in HALVES or item_bytes(dtype) >= 4)


def lanes_for(problem: ScatterProblem, vector: int) -> int:
    """Threads that share a row: a power of two that covers it, or a warp if its size is unknown."""
    if problem.index_slice:
        return 1
    if not problem.slice.is_static:
        return 32
    lanes = 1
    while lanes * vector < problem.slice.constant and lanes < _MAX_LANES:
        lanes *= 2
    return lanes


def _reduce(operands: Operands, config: Config) -> None:
    problem, sizes = operands.problem, operands.sizes
    vector, threads = config["vector"], config["threads"]
    lanes = min(lanes_for(problem, vector), threads)
    # In long rows each lane has many columns already. More items would only cost registers.
    unroll = config["unroll"] if lanes < _MAX_LANES else 1
    needed = sizes.items * lanes // unroll
    launch(
        operands,
        ("parallel",),
        f"  parallel<P, {lanes}, {vector}, {unroll}>(out, updates, indices, sizes);",
        blocks=ceil_div(sizes.items * lanes, threads * unroll),
        threads=threads,
        overlaps=not isinstance(needed, int) or needed <= threads_at_a_time(operands.target),
    )
