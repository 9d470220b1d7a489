"""Column resident: some columns of a batch are held in shared memory, and read and written once."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import ceil_div
from tvm_scatter.selection.arithmetic import larger, smaller
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import Terms, Work
from tvm_scatter.strategies.cuda.codegen.launch import launch
from tvm_scatter.strategies.cuda.codegen.source import accumulate_bytes
from tvm_scatter.strategies.cuda.codegen.target import shared_memory_limit

from .machines import multiprocessors
from .steps import shared_contention

#: Columns that a block may hold, the most first: whole sectors of memory in each row.
_COLUMNS = (128, 96, 64, 48, 32, 24, 16, 8)
#: Blocks that a multiprocessor has at a time, if they fit.
_RESIDENT = 2
_SECTOR_BYTES = 32
#: Batches, where their number is not known.
_SOME_BATCHES = 128
#: Cycles for reading data, for reading indices, and for combining, which wait for each other.
_PHASES = 2000.0
#: Cycles of an access and what waits for it.
_ACCESS_CYCLES = 500.0
#: Cycles of a multiprocessor for a block that has next to nothing to do: measured with 26 000 and
#: 38 000 of them on an H200.
_BLOCK_CYCLES = 1500.0
#: Cycles for reading what updates are computed from, once: the list of edges, then the row that one
#: names. Measured with 10 556 edges, whose 16 blocks took 81 us on an H200.
_COMPUTED_CYCLES = 5000.0


class ColumnResident(Implementation):
    """A block for some columns of each batch: few batches of wide rows fill the machine, too."""

    name = "column_resident"
    takes_empty = False
    accumulates_wide = True
    fuses = True
    fills = True
    finishes = True
    summary = "a few dozen batches of short columns, an index for each element"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        if problem.reduces.needs_count:
            return "it keeps no counts"
        if problem.slice.is_one:
            return "there is one column"
        if not (problem.extent * problem.slice).is_static:
            return "the size of a column must be known"
        if not self.knobs(problem, target)["columns"]:
            needed = _bytes(problem, min(_COLUMNS))
            return f"{min(_COLUMNS)} columns take {needed} bytes and a block has " + str(
                shared_memory_limit(target)
            )
        return None

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        limit, width = shared_memory_limit(target), problem.slice.constant
        batches = problem.batch.constant if problem.batch.is_static else _SOME_BATCHES
        units = multiprocessors(target)

        def busy(columns: int) -> float:
            """The share of places for blocks, and of columns in them, that is in use."""
            blocks = batches * ceil_div(width, columns)
            resident = min(_RESIDENT, limit // max(_bytes(problem, columns), 1))
            turns = ceil_div(blocks, resident * units)
            return batches * width / columns / max(turns * _RESIDENT * units, 1)

        fitting = [n for n in _COLUMNS if _bytes(problem, n) <= limit]
        return {
            "columns": tuple(sorted(fitting, key=busy, reverse=True)),
            "threads": (1024, 512),
            "unroll": (4, 8),
        }

    def cost(self, work: Work, config: Config) -> Terms:
        columns = float(config["columns"])
        parts = larger(work.slice / columns, 1.0)
        blocks = work.batch * parts
        again = 0.0 if work.problem.index_slice else (parts - 1.0) * work.index_bytes
        # Less than a sector of each row moves as a whole one.
        sectors = larger(_SECTOR_BYTES / (columns * work.element), 1.0)
        moved = (work.held_bytes + work.operand_bytes) * sectors + again
        share = work.machine.memory / work.machine.multiprocessors
        turns = work.turns(blocks)
        fused, threads = work.problem.fused, float(config["threads"])
        # A thread waits for each of its accesses, to read, reset and write what the block holds.
        held, updates = work.extent * columns, work.update_size / larger(blocks, 1.0)
        space = work.machine.shared_bytes / larger(
            held * accumulate_bytes(work.problem.data_dtype), 1.0
        )
        at_a_time = larger(smaller(smaller(work.machine.threads / threads, space), turns), 1.0)
        accesses = larger(held / threads, 1.0)
        if work.problem.starts_from_identity:
            accesses = accesses + updates / threads
        # What an update takes, and takes again where others change its place.
        each = shared_contention.instructions(work) * shared_contention.sharing_a_word(work)
        each = each * shared_contention.repeats(work, threads, held)
        at_once = work.update_size / larger(blocks, 1.0) / (config["threads"] * config["unroll"])
        return {
            "launches": work.launches(1) + work.cycles(_PHASES),
            "streams": work.streams(moved),
            "turns": turns * moved / larger(blocks, 1.0) / share,
            "accesses": work.cycles(_ACCESS_CYCLES * turns * accesses / at_a_time),
            # A block has a thousand threads, whatever little they do.
            "blocks": work.cycles(_BLOCK_CYCLES * blocks / work.machine.multiprocessors),
            "updates": work.cycles(turns * updates * each),
            "hot updates": work.cycles(turns * work.hottest * shared_contention.at_a_place(work)),
            **({"computed": work.cycles(_COMPUTED_CYCLES * turns * at_once)} if fused else {}),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        sizes, columns = operands.sizes, config["columns"]
        source = "out" if operands.data is None else "data"
        launch(
            operands,
            ("column_resident",),
            f"  resident_columns<P, {columns}, {config['unroll']}>(output, {source}, updates, "
            "indices, sizes, shared);",
            blocks=sizes.batch * ceil_div(sizes.slice, columns),
            threads=config["threads"],
            shared_bytes=max(_bytes(operands.problem, columns), 1),
            resolves_every_index=True,
        )


def _bytes(problem: ScatterProblem, columns: int) -> int:
    return problem.extent.constant * columns * accumulate_bytes(problem.data_dtype)
