"""Running sums and products on the GPU: a warp for each line, or one pass over its tiles."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.scan import Scan, ScanProblem
from tvm_scatter.problem.reductions import DATA_DTYPES, item_bytes
from tvm_scatter.problem.sizes import at_least, at_most, ceil_div, round_up
from tvm_scatter.strategies.cuda.codegen.constants import device_constant
from tvm_scatter.strategies.cuda.codegen.launch import run_body
from tvm_scatter.strategies.cuda.codegen.source import accumulate_bytes, c_type

_WARP = device_constant("common", "kWarp")
_THREADS = device_constant("scan", "kScanThreads")
_WARPS = _THREADS // _WARP
_GROUP = device_constant("scan", "kScanGroup")

_REDUCTIONS = {"sum": "Add", "prod": "Mul"}
#: Bytes of one access, and of the values that a thread holds.
_ACCESS_BYTES, _HELD_BYTES = 16, 64
_MOST_IN_VECTOR, _MOST_HELD = 8, 16
#: A warp scans a strip of up to so many times the rows that it holds, and any strip where there are
#: enough of them to fill a GPU.
_TURNS, _MANY_STRIPS = 4, 4096
#: Lines whose elements lie side by side are read across where they are no longer than this.
_SHORT = 32
#: Blocks that make a workspace ready, at most.
_BLOCKS = 1024
_ALIGNMENT = 16


def _is(number: int, size: Any) -> bool:
    return isinstance(size, int) and size == number


@dataclass(frozen=True)
class _Lines:
    """A problem as the kernel has it: lines of ``length``, and ``columns`` neighbours of each."""

    batch: Any
    length: Any
    columns: Any
    row_stride: Any
    column_stride: Any

    @staticmethod
    def of(problem: ScanProblem) -> _Lines:
        length, inner = problem.length, problem.inner
        if _is(1, inner) and isinstance(length, int) and length <= _SHORT:
            return _Lines(1, length, problem.outer, 1, length)
        return _Lines(problem.outer, length, inner, inner, 1)

    @property
    def lanes(self) -> Any:
        """The columns of a strip."""
        return at_least(at_most(self.columns, _WARP), 1)

    @property
    def strips(self) -> Any:
        return self.batch * ceil_div(self.columns, _WARP)


@dataclass(frozen=True)
class _Form:
    """How many elements a thread takes at once, and how often, before results are written."""

    vector: int
    steps: int

    @staticmethod
    def of(problem: ScanProblem, lines: _Lines) -> _Form:
        held = min(_HELD_BYTES // accumulate_bytes(problem.dtype), _MOST_HELD)
        widest = max(item_bytes(problem.data_dtype), item_bytes(problem.dtype))
        side_by_side = _is(1, lines.columns) and _is(1, lines.row_stride)
        vector = min(_ACCESS_BYTES // widest, _MOST_IN_VECTOR, held) if side_by_side else 1
        return _Form(vector, held // vector)

    def rows(self, lines: _Lines) -> Any:
        """The rows that a warp holds."""
        return self.steps * self.vector * (_WARP // lines.lanes)

    def tiles(self, lines: _Lines) -> Any:
        """The tiles of a line, the first of which may begin before the line does."""
        before = 0 if _is(1, lines.batch) else self.vector - 1
        return ceil_div(lines.length + before, _WARPS * self.rows(lines))

    def takes_warps(self, lines: _Lines) -> Any:
        """Whether a warp takes a line: a ``bool``, or a condition on symbolic sizes."""
        short = lines.length <= _TURNS * self.rows(lines)
        many = lines.strips >= _MANY_STRIPS
        if short is True or many is True:
            return True
        unknown = [each for each in (short, many) if not isinstance(each, bool)]
        return tirx.any(*unknown) if unknown else False


def _slots(lines: _Lines, form: _Form) -> Any:
    """What all tiles tell each other: see ``Slots`` in ``device/scan.cuh``."""
    tiles = form.tiles(lines)
    groups = ceil_div(tiles, _GROUP)
    return lines.strips * (tiles + groups + ceil_div(groups, _GROUP) + 1)


def _flag_bytes(lines: _Lines, form: _Form) -> Any:
    return round_up((_slots(lines, form) + 1) * 4, _ALIGNMENT)


def _workspace(problem: ScanProblem) -> Any:
    lines = _Lines.of(problem)
    form = _Form.of(problem, lines)
    if form.takes_warps(lines) is True:
        return _ALIGNMENT
    values = _slots(lines, form) * lines.lanes * accumulate_bytes(problem.dtype)
    return _flag_bytes(lines, form) + values


def _emit(problem: ScanProblem, data: Any, out: Any, workspace: Any) -> None:
    lines = _Lines.of(problem)
    size = problem.size
    if isinstance(size, int):
        _emit_scan(problem, lines, data, out, workspace)
        return
    with T.If(size > 0), T.Then():
        _emit_scan(problem, lines, data, out, workspace)


def _emit_scan(problem: ScanProblem, lines: _Lines, data: Any, out: Any, workspace: Any) -> None:
    form = _Form.of(problem, lines)
    warps = form.takes_warps(lines)
    if warps is True:
        _by_warps(problem, lines, form, data, out)
    elif warps is False:
        _by_tiles(problem, lines, form, data, out, workspace)
    else:
        with T.If(warps):
            with T.Then():
                _by_warps(problem, lines, form, data, out)
            with T.Else():
                _by_tiles(problem, lines, form, data, out, workspace)


def _by_warps(problem: ScanProblem, lines: _Lines, form: _Form, data: Any, out: Any) -> None:
    call = f"scan_by_warps<{_arguments(form, problem.exclusive)}>({_POINTERS}, {_LINES});"
    values = {**_tensors(data, out), **_sizes(lines)}
    _launch(f"{_scanned(problem)}  {call}", values, ceil_div(lines.strips, _WARPS))


def _by_tiles(
    problem: ScanProblem, lines: _Lines, form: _Form, data: Any, out: Any, workspace: Any
) -> None:
    flags = {"void* flags": workspace.data}
    count = _slots(lines, form) + 1
    _launch(
        "  begin_tiles(static_cast<uint32*>(flags), count);",
        {**flags, "long long count": count},
        at_most(ceil_div(count, _THREADS), _BLOCKS),
    )
    tiles = form.tiles(lines)
    call = (
        f"scan_by_tiles<{_arguments(form, problem.exclusive)}>({_POINTERS}, "
        f"static_cast<uint32*>(flags), static_cast<char*>(flags) + flag_bytes, {_LINES}, tiles);"
    )
    memory = {"long long flag_bytes": _flag_bytes(lines, form), "long long tiles": tiles}
    values = {**_tensors(data, out), **flags, **memory, **_sizes(lines)}
    _launch(f"{_scanned(problem)}  {call}", values, lines.strips * tiles)


_POINTERS = "static_cast<S::Out*>(out), static_cast<const S::In*>(data)"
_LINES = "Lines{batch, length, columns, row_stride, column_stride}"


def _tensors(data: Any, out: Any) -> dict[str, Any]:
    return {"void* out": out.data, "void* data": data.data}


def _sizes(lines: _Lines) -> dict[str, Any]:
    return {f"long long {each.name}": getattr(lines, each.name) for each in fields(lines)}


def _arguments(form: _Form, exclusive: bool) -> str:
    """The arguments of the templates; ``S`` is declared in front of the call."""
    return f"S, {form.vector}, {form.steps}, {'true' if exclusive else 'false'}"


def _scanned(problem: ScanProblem) -> str:
    """The declaration of what a scan combines."""
    types = f"{c_type(problem.data_dtype)}, {c_type(problem.dtype)}"
    return f"  using S = Running<{_REDUCTIONS[problem.kind]}, {types}>;\n"


def _launch(body: str, arguments: dict[str, Any], blocks: Any) -> None:
    run_body("scan", body, arguments, blocks, _THREADS)


def _refusal(data_dtype: str, dtype: str) -> str | None:
    others = [each for each in (data_dtype, dtype) if each not in DATA_DTYPES]
    return f"{others[0]} is not scanned by this package" if others else None


def _scan_form(problem: ScanProblem) -> str:
    lines = _Lines.of(problem)
    warps = _Form.of(problem, lines).takes_warps(lines)
    if isinstance(warps, bool):
        return "a line by a warp" if warps else "a line in tiles, in one pass"
    return "a line by a warp or in tiles, as the run time finds the sizes"


SCAN = Scan(_refusal, _scan_form, _workspace, _emit)
