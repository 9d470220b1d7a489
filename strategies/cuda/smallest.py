"""The smallest elements of lines on the GPU: a warp or a block selects those of a line."""

from __future__ import annotations

from typing import Any

from tvm.tirx.script import builder as T

from tvm_scatter.emit.smallest import Smallest, SmallestProblem
from tvm_scatter.problem.reductions import item_bytes
from tvm_scatter.problem.sizes import ceil_div
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import run_body
from tvm_scatter.strategies.cuda.codegen.source import c_type

_WARP = device_constant("common", "kWarp")
_THREADS = device_constant("smallest", "kSelectThreads")

#: The threads that take lines of a length that they can keep, a few elements each.
_TEAMS = (_WARP, _THREADS, 512)
_HELD = 32
_LONGEST_KEPT = _TEAMS[-1] * _HELD
#: The threads that take longer lines, and lines of an unknown length.
_LONG_TEAM, _SOME_TEAM = 1024, 256
#: Parts of longer lines, of which some elements each are left, no more than a team keeps.
_PARTS = (_LONGEST_KEPT // 2, _LONGEST_KEPT)
#: More elements than these are not put in order by warps, whose memory is too small, or at all,
#: because each is compared with each.
_MOST_OF_WARP, _MOST = 128, device_constant("smallest", "kSelectEnough")
#: A sort is faster where most of a line is wanted, many of one that a block sorts by itself, many
#: of few long ones, or any of few long ones without parts, which are as many blocks.
_SORTED_PART = 2
_MANY, _SHORT_LINE = 192, 4096
_FEW_LINES, _LONG_LINE = 8, 1 << 15
_PLACE_BYTES = 8


def _refusal(problem: SmallestProblem) -> str | None:
    if problem.dtype not in ("int32", "int64"):
        return f"{problem.dtype} is not selected by this package"
    if problem.count > _MOST:
        return f"more than {_MOST} are wanted"
    if not isinstance(problem.length, int):
        return None
    lines = problem.number
    many = problem.count > _MANY
    few = isinstance(lines, int) and lines <= _FEW_LINES and problem.length > _LONG_LINE
    if few and (many or _parts(problem) == 1):
        return "few long lines are sorted faster"
    if many and problem.length <= _SHORT_LINE:
        return "lines that a block keeps are sorted faster where many are wanted"
    if problem.count * _SORTED_PART > problem.length:
        return "most of a line is wanted"
    return None


def _form(problem: SmallestProblem) -> str:
    parts = _parts(problem)
    if parts > 1:
        return f"selected from what {parts} blocks select from parts of a line"
    threads, held = _team(problem.length, problem.count)
    team = "a warp" if threads == _WARP else f"{threads} threads"
    return f"selected by {team}" + ("" if held else " that read a line several times")


def _parts(problem: SmallestProblem) -> int:
    """The parts of a line from which the smallest elements are taken first."""
    if isinstance(problem.length, int) and problem.length > _LONGEST_KEPT:
        for length in _PARTS:
            parts = ceil_div(problem.length, length)
            if parts * problem.count <= _LONGEST_KEPT and problem.length // parts >= problem.count:
                return parts
    return 1


def _left(problem: SmallestProblem) -> Any:
    """The elements that parts leave, of all lines."""
    return problem.number * (_parts(problem) * problem.count)


def _workspace(problem: SmallestProblem) -> Any:
    if _parts(problem) == 1:
        return 0
    return _left(problem) * (_PLACE_BYTES + item_bytes(problem.dtype))


def _team(length: Any, count: int) -> tuple[int, int]:
    """How many threads take a line, and how many of its elements each of them keeps."""
    if not isinstance(length, int):
        return _SOME_TEAM, 0
    for threads in _TEAMS:
        held = ceil_div(length, threads)
        if held <= _HELD and not (threads == _WARP and count > _MOST_OF_WARP):
            return threads, held
    return _LONG_TEAM, 0


def _emit(problem: SmallestProblem, data: Any, places: Any, workspace: Any = None) -> None:
    size = problem.size
    if isinstance(size, int):
        _launches(problem, data, places, workspace)
        return
    with T.If(size > 0), T.Then():
        _launches(problem, data, places, workspace)


def _launches(problem: SmallestProblem, data: Any, places: Any, workspace: Any) -> None:
    tensors = {"void* out": places.data, "void* data": data.data}
    sizes = {f"long long {name}": getattr(problem, name) for name in ("outer", "length", "inner")}
    key = c_type(problem.dtype)
    read = f"static_cast<const {key}*>(data)"
    parts, length, picked = _parts(problem), problem.length, ""
    if parts > 1:
        threads, held = _TEAMS[-1], ceil_div(ceil_div(length, parts), _TEAMS[-1])
        memory = {"void* left": workspace.data, "long long left_places": _left(problem)}
        # Places first, which are the wider ones.
        declared = (
            "  long long* const picked = static_cast<long long*>(left);\n"
            f"  {key}* const keys = reinterpret_cast<{key}*>(picked + left_places);\n"
        )
        call = f"smallest_of_parts<{threads}, {held}>(keys, picked, {read}, length, inner"
        body = f"{declared}  {call}, {parts}, {problem.count});"
        blocks = problem.number * parts
        run_body("smallest", body, {**tensors, **sizes, **memory}, blocks, threads)
        length = parts * problem.count
        sizes, tensors = {**sizes, "long long length": length}, {**tensors, **memory}
        read, picked = "keys", declared
    threads, held = _team(length, problem.count)
    body = (
        f"{picked}  smallest<{threads}, {held}, {problem.count}>("
        f"static_cast<{c_type(problem.place_dtype)}*>(out), {read}, outer, length, inner"
        f"{', picked' if picked else ''});"
    )
    block = max(threads, _THREADS)
    blocks = ceil_div(problem.number, block // threads)
    run_body("smallest", body, {**tensors, **sizes}, blocks, block)


SMALLEST = Smallest(_refusal, _form, _workspace, _emit)
