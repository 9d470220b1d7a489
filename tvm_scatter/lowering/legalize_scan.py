"""Lowers running sums and products where the target has scans of its own.

TVM's scans on GPUs read, without a barrier, what other threads of a warp write. On CPUs they round
sums of 16-bit floats to 16 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax

from tvm_scatter.emit.scan import ScanProblem
from tvm_scatter.ops.shapes import SymbolTable, is_empty, is_one, no_elements, static_shape
from tvm_scatter.problem.reductions import HALVES
from tvm_scatter.selection.backend import backend_of

from .lines import LeftToTVM, PlannedLines, sizes_of_lines
from .target import target_of

#: What TVM's operators combine.
KINDS = {"relax.cumsum": "sum", "relax.cumprod": "prod"}


def legalize_scan(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Emit a scan; the call itself where TVM has to compute it."""
    [data] = call.args
    try:
        _check(call)
    except LeftToTVM:
        dtype = str(call.ty.dtype)
        is_known = static_shape(call) is not None
        return _in_32_bits(bb, call) if is_known and dtype in HALVES else call
    if is_empty(data):
        return no_elements(call.ty)
    if _is_alone(call):
        has_axes = call.attrs.axis is not None
        whole = data if has_axes else bb.emit(relax.op.reshape(data, call.ty.shape))
        return relax.op.astype(whole, str(call.ty.dtype))
    return _planned(call).emit(bb, f"running_{KINDS[call.op.name]}", data)


def form_of_scan(call: relax.Call) -> str | None:
    """How a scan is computed, as a clause; ``None`` if there is nothing to add up.

    Raises
    ------
    LeftToTVM
        If TVM computes it.
    """
    _check(call)
    return None if is_empty(call.args[0]) or _is_alone(call) else _planned(call).form


def _check(call: relax.Call) -> None:
    """Raise if TVM has to compute a scan."""
    [data] = call.args
    target = target_of(data)
    scan = backend_of(target).scan
    if static_shape(call) is None:
        raise LeftToTVM("its shape is unknown")
    if scan is None:
        raise LeftToTVM(f"this package has no scan for {target.kind.name}")
    refusal = scan.refusal(str(data.ty.dtype), str(call.ty.dtype))
    if refusal is not None:
        raise LeftToTVM(refusal)


def _is_alone(call: relax.Call) -> bool:
    """Whether each element is all of its line, and its own result."""
    shape, axis = static_shape(call.args[0]) or [], _axis(call)
    line = shape if axis is None else shape[axis : axis + 1]
    return not call.attrs.exclusive and all(map(is_one, line))


def _axis(call: relax.Call) -> int | None:
    """The axis that is scanned; ``None`` if all is one line."""
    rank = len(static_shape(call.args[0]) or [])
    return None if call.attrs.axis is None else int(call.attrs.axis) % max(rank, 1)


def _planned(call: relax.Call) -> PlannedLines:
    """Plan a scan that the target takes."""
    [data] = call.args
    scan = backend_of(target_of(data)).scan
    assert scan is not None, "it is checked"
    symbols, axis, exclusive = SymbolTable(), _axis(call), bool(call.attrs.exclusive)
    dtypes = str(data.ty.dtype), str(call.ty.dtype)
    shapes = symbols.shape(call.op.name, data), symbols.shape(call.op.name, call)
    kind = KINDS[call.op.name]

    def problem(values: Mapping[str, Any]) -> ScanProblem:
        return ScanProblem(*sizes_of_lines(shapes[0], axis, values), kind, exclusive, *dtypes)

    parameters = [("data", shapes[0], dtypes[0]), ("out", shapes[1], dtypes[1])]
    return PlannedLines(scan, problem, symbols.values, call.ty, parameters)


def _in_32_bits(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """The scan of 16-bit floats by TVM's function, which would round each sum to 16 bits."""
    [data], dtype = call.args, str(call.ty.dtype)
    wide = bb.emit(relax.op.astype(bb.emit(relax.op.astype(data, dtype)), "float32"))
    operator = {"sum": relax.op.cumsum, "prod": relax.op.cumprod}[KINDS[call.op.name]]
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    total = bb.emit(operator(wide, axis, "float32", bool(call.attrs.exclusive)))
    return relax.op.astype(total, dtype)
