"""How long updates in shared memory hold each other up. Cycles are those of an H200."""

from __future__ import annotations

from typing import Any

from tvm_scatter.problem.reductions import HALVES
from tvm_scatter.selection.arithmetic import larger, smaller
from tvm_scatter.selection.work import Work

from .contention import looks_first, seldom_retries, stores

#: Sums of a hot place that do not wait for each other, about, where each lane of a warp has one;
#: and of loops of compare-and-swap that seldom fail.
_LANES, _LANES_THAT_SWAP = 25, 3
#: Cycles of a loop that fails; more of each of so many at the beginning.
_LOOP_CYCLES, _FIRST_CYCLES, _FIRST = 200.0, 25.0, 1000.0
#: How many times an instruction's time a loop of compare-and-swap takes that does not fail; a look
#: whether an extreme changes anything, of 32 bits, of 16 that are converted or swap, and of 64. How
#: often more a loop runs if its place is never free.
_SWAP, _LOOK, _NARROW_LOOK, _WIDE_LOOK, _REPEATED = 4.0, 1.5, 2.0, 2.5, 2.0


def swaps(work: Work) -> bool:
    """Whether combining compares and swaps."""
    problem = work.problem
    return not stores(problem) and (_shares_words(work) or not problem.reduces.has_atomic)


def instructions(work: Work) -> float:
    """How many times that of an instruction is the time for an update that nothing holds up."""
    if looks_first(work.problem):
        return {4: _LOOK, 8: _WIDE_LOOK}.get(work.element, _NARROW_LOOK)
    return _SWAP if swaps(work) else 1.0


def repeats(work: Work, threads: Any, places: Any) -> Any:
    """How often an update is tried, where threads of a block meet at so many places.

    Only 32-bit integers and what is stored have an instruction. All else is tried until no other
    thread has changed the place, or the word around it, in the meantime.
    """
    problem = work.problem
    if stores(problem) or (looks_first(problem) and not swaps(work)):
        return 1.0
    if not swaps(work) and problem.data_dtype in ("int32", "uint32"):
        return 1.0
    in_a_word = 4.0 / work.element if _shares_words(work) else 1.0
    meeting = threads * in_a_word
    return 1.0 + _REPEATED * meeting / larger(meeting + places, 1.0)


def sharing_a_word(work: Work) -> float:
    """Elements of a row that compare and swap the same word."""
    return 4.0 / work.element if _shares_words(work) and not work.problem.width.is_one else 1.0


def at_a_place(work: Work) -> float:
    """Cycles for which an update of one place holds up the next.

    Only 32-bit integers have an instruction; sums of other types take turns at a lock.
    """
    problem = work.problem
    if stores(problem):
        return 0.0
    if looks_first(problem):
        return 1.0
    if swaps(work):
        return 10.0 if seldom_retries(problem) else _LOOP_CYCLES
    if problem.data_dtype in ("int32", "uint32"):
        return 1.0
    return 35.0 if work.element == 8 else 25.0


def of_lanes(work: Work, updates: Any) -> Any:
    """Cycles for so many updates of a hot place, where each lane has a place of its own for it."""
    seldom = swaps(work) and seldom_retries(work.problem)
    each = 0.5 + at_a_place(work) / (_LANES_THAT_SWAP if seldom else _LANES)
    first = 0.0 if seldom or at_a_place(work) < _LOOP_CYCLES else _FIRST_CYCLES
    return each * updates + first * smaller(updates, _FIRST)


def _shares_words(work: Work) -> bool:
    """Whether elements share words: 16-bit floats have 32 bits each."""
    return work.element < 4 and work.problem.data_dtype not in HALVES
