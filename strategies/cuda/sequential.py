"""Sequential: one thread applies the updates of a line along the axis in order."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, ceil_div
from tvm_scatter.selection.arithmetic import choose, is_at_most, larger, smaller
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import SECTOR_BYTES, Terms, Work
from tvm_scatter.strategies.cuda.codegen.launch import launch

from .steps import contention, stages

#: Up to this many bytes, the blocks that own the lines copy the data. Beyond, a separate launch
#: that copies is faster.
_FUSED_BYTES = 1 << 18
#: Cycles from one update of a line to the next, and lines whose updates are under way together.
_UPDATE_CYCLES, _IN_FLIGHT = 500.0, 4000.0
#: Cycles of a multiprocessor for an update whose sectors no other thread of the warp has.
_APART_CYCLES = 2.0


class Sequential(Implementation):
    """One thread for each line: the last update wins, and sums are reproducible."""

    name = "sequential"
    deterministic = True
    fuses = True
    summary = "a handful of updates, or many short lines: copy and update in one launch"

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        return {"threads": (1024, 64, 128, 256, 512)}

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        return stages.count_bytes(problem, sizes)

    def cost(self, work: Work, config: Config) -> Terms:
        problem, lines = work.problem, work.batch * work.slice
        fusable = not problem.in_place and problem.reduces_into_data
        fused = is_at_most(work.data_bytes, float(_FUSED_BYTES)) if fusable else False
        lines_of_block = choose(fused, 32.0, float(config["threads"]))
        blocks = larger(lines / lines_of_block, 1.0)
        copying = smaller(blocks, float(work.machine.multiprocessors))
        copied = work.streams(work.copied_bytes)
        # What is stored need not be read first.
        cycles = _UPDATE_CYCLES * (0.5 if problem.only_stores else 1.0)
        touched = work.batch * work.count * larger(work.slice * work.element / SECTOR_BYTES, 1.0)
        if problem.index_slice or not problem.batch.is_one:
            near = contention.warp_sectors(work, work.slice)
            # Short lines of many batches lie side by side.
            touched = near if problem.index_slice else smaller(touched, near)
        # An index of each line is in a sector of its own, and so is what it leads to.
        apart = problem.index_batch and not problem.batch.is_one and problem.width.is_one
        in_block = smaller(lines_of_block, lines)
        step = _APART_CYCLES if apart else cycles / _IN_FLIGHT
        threads = blocks * config["threads"]
        # In place nothing has brought them into the cache. Neighbours come at the rate of a copy.
        fresh = (1.0 - work.missed(work.data_bytes)) if problem.in_place else 0.0
        first = touched * fresh / work.machine.missed_sectors
        passing = work.streams(2 * work.data_bytes)
        return {
            "launches": work.launches(
                1 + stages.around_launches(work) + choose(fused, 0.0, float(not problem.in_place))
            ),
            "streams": choose(fused, 0.0, copied)
            + work.streams(work.operand_bytes)
            + stages.around_time(work),
            "copies in few blocks": choose(
                fused, copied * work.machine.multiprocessors / copying, 0.0
            ),
            "updates of a line": work.cycles(cycles * work.count),
            "lines": work.cycles(work.turns(blocks) * in_block * work.count * step),
            # Whatever little a thread does, it has to be started.
            "threads": work.cycles(threads / work.machine.multiprocessors),
            "sectors": work.sectors(touched, work.data_bytes),
            "misses": smaller(work.misses(touched, work.data_bytes) + first, passing),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        problem, sizes = operands.problem, operands.sizes
        fusable = operands.data is not None and problem.reduces_into_data
        if not fusable:
            _separate(operands, config)
            return
        small = sizes.data_size * item_bytes(problem.data_dtype) <= _FUSED_BYTES
        if isinstance(small, bool):
            (_fused if small else _separate)(operands, config)
            return
        with T.If(tirx.all(small)):
            with T.Then():
                _fused(operands, config)
            with T.Else():
                _separate(operands, config)


def _fused(operands: Operands, config: Config) -> None:
    _apply(operands, config, copies=True)


def _separate(operands: Operands, config: Config) -> None:
    stages.copy_data(operands)
    stages.around(operands, lambda: _apply(operands, config, copies=False))


def _apply(operands: Operands, config: Config, copies: bool) -> None:
    sizes = operands.sizes
    threads = config["threads"]
    # Few lines to a block spread the copy, which takes most of the time, over more blocks.
    lines = 32 if copies else threads
    flag = "true" if copies else "false"
    launch(
        operands,
        ("sequential",),
        f"  sequential<P, {flag}>(out, data, updates, indices, sizes, {lines});",
        blocks=ceil_div(sizes.batch * sizes.slice, lines),
        threads=threads,
    )
