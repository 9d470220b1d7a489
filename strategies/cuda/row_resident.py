"""Row resident: the data of a batch is held in shared memory, and read and written once."""

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

from .steps import shared_contention

#: The most tiles of a batch: the block of each tile reads all indices, which must cost less than is
#: saved.
_MOST_TILES = 8
#: From this many blocks on, blocks of half the threads fill the GPU, unless each has much to do.
_MANY_BLOCKS = 64
_LIGHT_BYTES = 32 << 10
_LIGHT_COUNT = 4096
#: Cycles of an access and what waits for it.
_ACCESS_CYCLES = 970.0
_ACCESS_BYTES = 16


class RowResident(Implementation):
    """One block for each batch, or for a tile of it, reduces in shared memory."""

    name = "row_resident"
    takes_empty = False
    accumulates_wide = True
    fuses = True
    fills = True
    finishes = True
    summary = "many batches of short rows, with many updates each"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        if problem.reduces.needs_count:
            return "it keeps no counts"
        slab = problem.extent * problem.slice
        if not slab.is_static:
            return "the size of a row must be known"
        needed = slab.constant * _element_bytes(problem)
        most = shared_memory_limit(target) * _MOST_TILES
        if needed > most:
            return f"a batch takes {needed} bytes and {most} fit in {_MOST_TILES} blocks"
        return None

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        slab = problem.extent.constant * problem.slice.constant * _element_bytes(problem)
        many = not problem.batch.is_static or problem.batch.constant >= _MANY_BLOCKS
        light = slab <= _LIGHT_BYTES and problem.count.constant <= _LIGHT_COUNT
        # Small enough for several blocks on a multiprocessor, if there are that many.
        threads = (512, 256, 1024) if many and light else (1024, 512, 256)
        return {"threads": threads, "unroll": (4, 8, 2)}

    def cost(self, work: Work, config: Config) -> Terms:
        tiles = larger(
            work.extent * work.slice * _element_bytes(work.problem) / work.machine.shared_bytes, 1.0
        )
        blocks = work.batch * tiles
        turns = work.turns(blocks)
        updates = work.count * work.slice
        moved = work.held_bytes + work.operand_bytes
        entries = updates if work.problem.index_slice else work.count
        # A thread waits for each of its accesses, to read and to write what the block holds.
        vector = _ACCESS_BYTES // work.element
        slab = work.problem.extent * work.problem.slice
        vector = vector if slab.constant % vector == 0 else 1
        held = work.extent * work.slice / tiles
        fitting = work.machine.threads / config["threads"]
        space = work.machine.shared_bytes / larger(held * _element_bytes(work.problem), 1.0)
        at_a_time = larger(smaller(smaller(fitting, space), turns), 1.0)
        accesses = larger(held / vector / config["threads"], 1.0)
        accesses = accesses + larger(updates / config["threads"] / config["unroll"], 1.0)
        if work.problem.starts_from_identity:
            accesses = accesses + updates / config["threads"]
        # What an update takes, and takes again where others change its place.
        each = shared_contention.instructions(work) * shared_contention.sharing_a_word(work)
        each = each * shared_contention.repeats(work, float(config["threads"]), held)
        share = work.machine.memory / work.machine.multiprocessors
        return {
            "launches": work.launches(1),
            "streams": work.streams(moved),
            "turns": turns * moved / larger(blocks, 1.0) / share,
            "accesses": work.cycles(_ACCESS_CYCLES * turns * accesses / at_a_time),
            "blocks": work.cycles(1000 * blocks / work.machine.multiprocessors),
            "updates": work.cycles(turns * updates / tiles * each),
            "hot updates": work.cycles(turns * work.hottest * shared_contention.at_a_place(work)),
            "tiles": turns * entries * work.item_index_bytes * (1 - 1 / tiles) / share,
        }

    def emit(self, operands: Operands, config: Config) -> None:
        problem, sizes = operands.problem, operands.sizes
        element = _element_bytes(problem)
        slab = sizes.extent * sizes.slice
        tiles = ceil_div(slab * element, shared_memory_limit(operands.target))
        # Tiles begin at multiples of 16 bytes.
        tile = ceil_div(ceil_div(slab, tiles), 16) * 16
        tiles = ceil_div(slab, tile)
        source = "out" if operands.data is None else "data"
        launch(
            operands,
            ("resident",),
            f"  resident<P, {config['unroll']}>(output, {source}, updates, indices, sizes, shared, "
            f"{tile}, Offset({tiles}));",
            blocks=sizes.batch * tiles,
            threads=config["threads"],
            shared_bytes=tile * element,
            resolves_every_index=True,
            completion_count_bytes=0,
        )


def _element_bytes(problem: ScatterProblem) -> int:
    return accumulate_bytes(problem.data_dtype)
