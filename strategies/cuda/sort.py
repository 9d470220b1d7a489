"""Sorts lines on the GPU: a block has a short one to itself, and long ones are sorted together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.tirx.script import builder as T

from tvm_scatter.emit.sort import Sort, SortProblem
from tvm_scatter.problem.sizes import at_least, at_most, ceil_div, round_up
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import run_body

from .sort_calls import TENSOR, descending, pointers, sizes, tensors
from .sort_tiles import LIMIT, TileSort

_WARP = device_constant("common", "kWarp")

#: Of lines that are no longer, each element is compared with each.
_COUNTED = 256
#: A block keeps lines that are no longer: their length, its threads, and the elements of each.
_KEPT = ((512, 256, 2), (1024, 256, 4), (2048, 512, 4), (4096, 512, 8))
_LONGEST_KEPT = _KEPT[-1][0]


def _refusal(problem: SortProblem) -> str | None:
    size = problem.size
    if problem.dtype not in ("int32", "int64"):
        return f"{problem.dtype} is not sorted by this package"
    return (
        f"there are {LIMIT} elements or more" if isinstance(size, int) and size >= LIMIT else None
    )


def _form(problem: SortProblem) -> str:
    if not isinstance(problem.length, int):
        return "by counting, by blocks or by radix, as the run time finds the length of a line"
    found: list[str] = []
    _by_length(
        problem.length,
        lambda: found.append("by counting, because a line is short"),
        lambda: found.append("a line by a block, because a block keeps it"),
        lambda: found.append("all lines by radix, because they are too long for a block"),
    )
    return found[0]


def _workspace(problem: SortProblem) -> Any:
    is_long = at_most(problem.length // (_LONGEST_KEPT + 1), 1)
    return 0 if isinstance(is_long, int) and is_long == 0 else TileSort(problem).bytes * is_long


def _emit(problem: SortProblem, data: Any, places: Any, workspace: Any = None) -> None:
    def counted() -> None:
        threads = _COUNTED
        together = threads // at_least(problem.length, 1)
        if isinstance(problem.length, int):
            threads = round_up(together * problem.length, _WARP)
        call = f"sort_by_counting<{threads}, {descending(problem)}>"
        _run(problem, call, data, places, ceil_div(problem.number, together), threads)

    def kept() -> None:
        longest = problem.length if isinstance(problem.length, int) else _LONGEST_KEPT
        _, threads, per_thread = next(form for form in _KEPT if longest <= form[0])
        call = f"sort_in_block<{threads}, {per_thread}, {descending(problem)}>"
        _run(problem, call, data, places, problem.number, threads)

    def in_tiles() -> None:
        TileSort(problem).emit(data, places, workspace)

    size = problem.size
    if isinstance(size, int):
        _by_length(problem.length, counted, kept, in_tiles)
        return
    with T.If(size > 0), T.Then():
        _by_length(problem.length, counted, kept, in_tiles)


def _by_length(
    length: Any, counted: Callable[[], None], kept: Callable[[], None], in_tiles: Callable[[], None]
) -> None:
    """Do what suits the length of lines, or emit all of it if only the run time finds that."""

    def longer() -> None:
        _if_at_most(length, _LONGEST_KEPT, kept, in_tiles)

    _if_at_most(length, _COUNTED, counted, longer)


def _if_at_most(
    length: Any, most: int, short: Callable[[], None], long: Callable[[], None]
) -> None:
    """Do one of two, or emit both if only the run time finds the length."""
    if isinstance(length, int):
        (short if length <= most else long)()
        return
    with T.If(length <= most):
        with T.Then():
            short()
        with T.Else():
            long()


def _run(
    problem: SortProblem, call: str, data: Any, places: Any, blocks: Any, threads: int
) -> None:
    body = f"  {call}({pointers(problem)}, {TENSOR});"
    run_body("sort_lines", body, {**tensors(data, places), **sizes(problem)}, blocks, threads)


SORT = Sort(_refusal, _form, _workspace, _emit)
