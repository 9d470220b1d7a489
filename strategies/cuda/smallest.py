"""The smallest elements of lines on the GPU: a warp or a block selects those of a line."""

from __future__ import annotations

from typing import Any

from tvm.tirx.script import builder as T

from tvm_scatter.emit.smallest import Smallest, SmallestProblem
from tvm_scatter.problem.sizes import ceil_div
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import run_routine
from tvm_scatter.strategies.cuda.codegen.source import c_type, routine

_WARP = device_constant("common", "kWarp")
_THREADS = device_constant("smallest", "kSelectThreads")

#: The threads that take lines of a length that they can keep, a few elements each.
_TEAMS = (_WARP, _THREADS, 512)
_HELD = 32
#: The threads that take longer lines, and lines of an unknown length.
_LONG_TEAM, _SOME_TEAM = 1024, 256
#: More elements than these are not put in order by warps, whose memory is too small, or at all,
#: because each is compared with each.
_MOST_OF_WARP, _MOST = 128, device_constant("smallest", "kSelectEnough")
#: A sort is faster where most of a line is wanted, or many of one that a block sorts by itself, and of
#: few long lines, which are as many blocks.
_SORTED_PART = 2
_MANY, _SHORT_LINE = 192, 4096
_FEW_LINES, _LONG_LINE = 8, 1 << 15


def _takes(problem: SmallestProblem) -> bool:
    if problem.dtype not in ("int32", "int64") or problem.count > _MOST:
        return False
    if not isinstance(problem.length, int):
        return True
    lines = problem.outer * problem.inner
    few = isinstance(lines, int) and lines <= _FEW_LINES
    is_long = few and problem.length > _LONG_LINE
    many = problem.length <= _SHORT_LINE and problem.count > _MANY
    return problem.count * _SORTED_PART <= problem.length and not is_long and not many


def _team(problem: SmallestProblem) -> tuple[int, int]:
    """How many threads take a line, and how many of its elements each of them keeps."""
    if not isinstance(problem.length, int):
        return _SOME_TEAM, 0
    for threads in _TEAMS:
        held = ceil_div(problem.length, threads)
        if held <= _HELD and not (threads == _WARP and problem.count > _MOST_OF_WARP):
            return threads, held
    return _LONG_TEAM, 0


def _emit(problem: SmallestProblem, data: Any, places: Any) -> None:
    size = problem.outer * problem.length * problem.inner
    if isinstance(size, int):
        _launch(problem, data, places)
        return
    with T.If(size > 0), T.Then():
        _launch(problem, data, places)


def _launch(problem: SmallestProblem, data: Any, places: Any) -> None:
    threads, held = _team(problem)
    sizes = {f"long long {name}": getattr(problem, name) for name in ("outer", "length", "inner")}
    arguments = {"void* out": places.data, "void* data": data.data, **sizes}
    body = (
        f"  smallest<{threads}, {held}, {problem.count}>("
        f"static_cast<{c_type(problem.place_dtype)}*>(out), "
        f"static_cast<const {c_type(problem.dtype)}*>(data), outer, length, inner);"
    )
    name, source = routine(("smallest",), (), list(arguments), body)
    block = max(threads, _THREADS)
    blocks = ceil_div(problem.outer * problem.inner, block // threads)
    run_routine(name, source, list(arguments.values()), blocks, block)


SMALLEST = Smallest(_takes, _emit)
