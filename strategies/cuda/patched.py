"""Patched: each block copies a span of the output and applies the updates that go there."""

from __future__ import annotations

from typing import Any

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes, ceil_div
from tvm_scatter.selection.arithmetic import larger, smaller
from tvm_scatter.selection.strategy import Config, Implementation
from tvm_scatter.selection.work import Terms, Work
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import launch

from .machines import multiprocessors
from .steps import stages

#: The most updates of a batch, and numbers in them if they are more than a few. Every block with
#: a part of the batch looks at all updates. On an H200 549 single numbers took a quarter of what
#: others take, 256 rows of 64 bytes a third, 256 rows of 512 bytes 3 times and 953 rows of 8 KB 3.5
#: times as much.
_MOST, _MOST_NUMBERS, _FEW = 4096, 1 << 14, 4
_FEW_UPDATES = device_constant("patched", "kFewUpdates")
_THREADS = 256
_ACCESS_BYTES = 16
#: Accesses of a thread, in order of preference. Copies are faster where those on their way are near
#: each other, but with one of a thread blocks look at updates more often than they copy.
_PER_THREAD = (2, 4, 1)
#: Blocks that a multiprocessor has at a time.
_RESIDENT = 8
#: Cycles for a look at as many updates as there are threads, and to compare two of their places.
_LOOK_CYCLES, _COMPARE_CYCLES = 1500.0, 8.0
#: Cycles from one update of a row to the next; and from one element of a thread to its next in the
#: same row, which is read when the one before is written (135 problems of an H200).
_UPDATE_CYCLES, _ELEMENT_CYCLES = 400.0, 1500.0


class Patched(Implementation):
    """Copy and update in one launch, without atomics; the last update wins."""

    name = "patched"
    deterministic = True
    summary = "few updates for each batch of a tensor that is copied, such as a cache"

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        each = problem.count * problem.slice if problem.index_slice else problem.count
        if not each.is_static or each.constant > _MOST:
            return f"blocks would look through {each} updates of a batch, which is too many"
        numbers = each * problem.width
        if each.constant > _FEW and not (numbers.is_static and numbers.constant <= _MOST_NUMBERS):
            return f"{numbers} numbers for a batch are too many to wait for one after the other"
        return None

    def knobs(self, problem: ScatterProblem, target: Any) -> dict[str, tuple[int, ...]]:
        # Whether threads hold what they copy until they have combined the updates there.
        few = problem.items.is_static and problem.items.constant <= _FEW_UPDATES
        held = (1, 0) if few and problem.width.is_one else (0,)
        if not problem.data_size.is_static:
            return {"per_thread": (*_PER_THREAD, 8), "held": held}
        # Fewer for each thread where a small output would leave threads without any.
        threads = _RESIDENT * _THREADS * multiprocessors(target)
        accesses = problem.data_size.constant * item_bytes(problem.data_dtype) // _ACCESS_BYTES
        filling = [n for n in _PER_THREAD if n * threads <= accesses] or [1]
        return {"per_thread": tuple(dict.fromkeys((filling[0], *_PER_THREAD, 8))), "held": held}

    def workspace(self, problem: ScatterProblem, sizes: Sizes, config: Config, target: Any) -> Any:
        return stages.count_bytes(problem, sizes)

    def cost(self, work: Work, config: Config) -> Terms:
        problem = work.problem
        copies_first = not problem.in_place and not problem.reduces_into_data
        span = float(_span(problem, config["per_thread"]))
        blocks = larger(work.data_size / span, 1.0)
        # Updates of the batches of a span, in turns of as many as there are threads.
        batch = larger(work.extent * work.slice, 1.0)
        items = work.count * (work.slice if problem.index_slice else 1.0)
        items = smaller(items * larger(span / batch, 1.0), work.items)
        looks = larger(items / _THREADS, 1.0)
        # Of a turn's, those that go to the span; the hottest place is in one block.
        found = smaller(items, float(_THREADS)) * smaller((span + work.width) / batch, 1.0)
        compared = _compare_cycles(found, found, work.width, span)
        hottest = smaller(work.hottest, float(_THREADS))
        hot = _compare_cycles(hottest, 1.0, work.width, span)
        if not work.problem.width.is_one:
            # Updates of a row are read one after the other, each by threads that wait for it.
            touched = work.turns(work.touched * larger(work.width / span, 1.0) / _RESIDENT)
            elements = larger(smaller(work.width, span) / _THREADS, 1.0)
            update = _UPDATE_CYCLES + _ELEMENT_CYCLES * (elements - 1.0)
            hot = update * larger(hottest, 1.0) * touched
        busy = work.turns(blocks) * looks * (_LOOK_CYCLES / _RESIDENT + compared)
        moved = work.written_bytes if problem.in_place else work.copied_bytes
        # Half of the blocks that can be there at a time are, on average, in the last turn.
        turns = work.turns(blocks / _RESIDENT)
        hidden = 0.0 if problem.in_place or copies_first else work.streams(moved)
        return {
            "launches": work.launches(1 + stages.around_launches(work) + copies_first),
            "streams": work.streams(moved) * (1.0 + 0.5 / turns) + stages.around_time(work),
            # A block reads its updates when it has found them.
            "operands": work.streams(work.operand_bytes),
            "looks": work.cycles(looks * (_LOOK_CYCLES + compared)),
            # Blocks that copy leave time to others.
            "updates": larger(work.cycles(busy) - hidden, 0.0),
            "hot updates": work.cycles(looks * hot),
        }

    def emit(self, operands: Operands, config: Config) -> None:
        if operands.data is not None and operands.problem.reduces_into_data:
            _patch(operands, config, "data")
            return
        stages.copy_data(operands)
        stages.around(operands, lambda: _patch(operands, config, "out"))


def _span(problem: ScatterProblem, per_thread: int) -> int:
    """Elements that a block copies."""
    return _THREADS * per_thread * (_ACCESS_BYTES // item_bytes(problem.data_dtype))


def _compare_cycles(found: Any, places: Any, width: Any, span: float) -> Any:
    """Cycles to combine the updates of a block's span: each place looks through all of them."""
    elements = larger(places * smaller(width, span) / _THREADS, 1.0)
    return _COMPARE_CYCLES * found * (1.0 + elements)


def _patch(operands: Operands, config: Config, source: str) -> None:
    per_thread = config["per_thread"]
    span = _span(operands.problem, per_thread)
    function = "patch_few" if source == "data" and config["held"] else "patch"
    launch(
        operands,
        ("patched",),
        f"  {function}<P, {_THREADS}, {per_thread}>(out, {source}, updates, indices, sizes);",
        ceil_div(operands.sizes.data_size, span),
        _THREADS,
    )
