"""Private bins: reduces each chunk of updates into its own copy of the output, then joins these."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.computed_updates import element
from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, ceil_div
from tvm_scatter.selection.arithmetic import larger, smaller
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import Terms, Work

from .steps import combiners, costs, loops, memory_costs, values

#: The most bytes of one copy of the output, so that it stays in the first two levels of cache.
_MOST_BYTES = 1 << 16
_MOST_CHUNKS = 64
_LEAST_CHUNK = 4096
#: The fewest updates of a chunk for each bin, so that clearing and joining bins costs little.
_UPDATES_PER_BIN = 8
_JOIN_TASK = 1024


class PrivateBins(Implementation):
    """For histograms. Chunks depend on the sizes alone, and are joined in order.

    So the result is the same under any number of threads.
    """

    name = "private_bins"
    accumulates_wide = True
    deterministic = True
    fuses = True
    summary = "an output that fits the first-level cache, and many updates: histograms"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        if not (problem.reduces.merges and problem.include_self):
            return "it reduces into the data only"
        refusal = loops.refusal_of_sizes(problem)
        if refusal is not None:
            return refusal
        needed = problem.data_size.constant * _accumulator_bytes(problem)
        if needed > _MOST_BYTES:
            return f"the output takes {needed} bytes and a chunk has {_MOST_BYTES}"
        return None

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        chunks = ceil_div(loops.item_count(problem, sizes), _chunk(problem, sizes))
        return chunks * sizes.data_size * _accumulator_bytes(problem)

    def cost(self, work: Work, config: Config) -> Terms:
        workers = costs.cores(work)
        chunk = larger(_UPDATES_PER_BIN * costs.keys(work), float(_LEAST_CHUNK))
        chunks = larger(smaller(work.items / chunk, float(_MOST_CHUNKS)), 1.0)
        return {
            "launches": costs.threads(work, 3),
            "streams": memory_costs.moved(work),
            "finds": costs.find(work, work.items, workers),
            "updates": costs.combine(work, workers),
            "extremes": costs.extremes(work, workers),
            "waits": costs.again_soon(work, workers),
            "bins": work.cycles(2 * chunks * work.data_size) / workers,
        }

    def emit(self, operands: Operands, config: Config) -> None:
        problem, sizes = operands.problem, operands.sizes
        dtype = values.accumulator_dtype(problem.reduces, problem.data_dtype)
        items, size = loops.item_count(problem, sizes), sizes.data_size
        chunk = _chunk(problem, sizes)
        chunks = ceil_div(items, chunk)
        if not chunks * size:
            loops.copy_data(operands)
            return
        bins = loops.workspace_view(operands, 0, chunks * size, dtype)
        width = 1 if problem.index_slice else sizes.slice
        step = int(problem.update_slice)
        _, rounded = values.read_as(operands.updates, problem.data_dtype)

        def fill(start: Any, length: Any) -> None:
            own = T.bind(tirx.truncdiv(start, chunk) * size)
            with loops.serial(size) as i:
                T.buffer_store(bins, values.start_value(problem.reduces, dtype), [own + i])
            with loops.serial(length) as i:
                item = T.bind(start + i)
                b, k, s = loops.item_coordinates(operands, item)
                place, valid = loops.index_place(operands, item)
                with T.If(valid):
                    with T.Then():
                        at = T.bind(own + loops.key_number(operands, b, place, s) * width)
                        update = T.bind(loops.update_position(operands, b, k, s))
                        with loops.serial(width) as c:
                            value = element(operands.updates, update, c * step, width)
                            value = values.convert(rounded(value), dtype)
                            value = combiners.combine(problem.reduces, dtype, bins[at + c], value)
                            T.buffer_store(bins, value, [at + c])

        def join(start: Any, length: Any) -> None:
            total = loops.small_buffer(1, dtype)
            untouched = loops.small_buffer(1, "bool")
            source = operands.out if operands.data is None else operands.data
            nothing = values.start_value(problem.reduces, dtype)
            with loops.serial(length) as i:
                at = T.bind(start + i)
                T.buffer_store(total, values.convert(source[at], dtype), [0])
                T.buffer_store(untouched, tirx.const(True, "bool"), [0])
                with loops.serial(chunks) as c:
                    part = bins[c * size + at]
                    same = tirx.all(untouched[0], values.same_bits(part, nothing))
                    T.buffer_store(untouched, same, [0])
                    T.buffer_store(
                        total, combiners.combine(problem.reduces, dtype, total[0], part), [0]
                    )
                old = source[at]
                value = values.stored(problem.reduces, problem.data_dtype, total[0], old)
                # Combining with the identity may change the bits of a NaN.
                T.buffer_store(operands.out, tirx.Select(untouched[0], old, value), [at])

        loops.for_each_chunk(items, chunk, items * width, fill)
        loops.for_each_chunk(size, _JOIN_TASK, chunks * size, join)


def _accumulator_bytes(problem: ScatterProblem) -> int:
    return item_bytes(values.accumulator_dtype(problem.reduces, problem.data_dtype))


def _chunk(problem: ScatterProblem, sizes: Sizes) -> int:
    """The number of items that are reduced into one set of bins."""
    keys = loops.key_count(problem, sizes)
    items = loops.item_count(problem, sizes)
    return int(max(ceil_div(items, _MOST_CHUNKS), _UPDATES_PER_BIN * keys, _LEAST_CHUNK))
