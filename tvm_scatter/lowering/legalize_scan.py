"""Lowers running sums and products where the target has scans of its own.

TVM's scans on GPUs read, without a barrier, what other threads of a warp write. On CPUs they round
sums of 16-bit floats to 16 bits.
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from tvm_scatter.emit.scan import ScanProblem
from tvm_scatter.ops.shapes import SymbolTable, is_empty, is_one, no_elements, static_shape
from tvm_scatter.problem.reductions import HALVES
from tvm_scatter.selection.backend import backend_of

from .lines import call_of, sizes_of_lines
from .target import target_of

#: What TVM's operators combine.
KINDS = {"relax.cumsum": "sum", "relax.cumprod": "prod"}


def legalize_scan(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Emit a scan; the call itself where TVM has to compute it."""
    [data] = call.args
    target, dtypes = target_of(data), (str(data.ty.dtype), str(call.ty.dtype))
    scan = backend_of(target).scan
    if static_shape(call) is None:
        return call
    if scan is None or not scan.takes(*dtypes):
        return _in_32_bits(bb, call) if dtypes[1] in HALVES else call
    if is_empty(data):
        return no_elements(call.ty)
    shape, exclusive = static_shape(data) or [], bool(call.attrs.exclusive)
    axis = None if call.attrs.axis is None else int(call.attrs.axis) % max(len(shape), 1)
    if not exclusive and all(map(is_one, shape if axis is None else shape[axis : axis + 1])):
        whole = data if axis is not None else bb.emit(relax.op.reshape(data, call.ty.shape))
        return relax.op.astype(whole, dtypes[1])
    symbols = SymbolTable()
    shapes = symbols.shape(call.op.name, data), symbols.shape(call.op.name, call)
    kind = KINDS[call.op.name]

    def problem(values: dict[str, Any]) -> ScanProblem:
        return ScanProblem(*sizes_of_lines(shapes[0], axis, values), kind, exclusive, *dtypes)

    return call_of(
        bb,
        f"running_{kind}",
        data,
        call.ty,
        [("data", shapes[0], dtypes[0]), ("out", shapes[1], dtypes[1])],
        scan.workspace(problem(symbols.values)),
        lambda values, *buffers: scan.emit(problem(values), *buffers),
    )


def _in_32_bits(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """The scan of 16-bit floats by TVM's function, which would round each sum to 16 bits."""
    [data], dtype = call.args, str(call.ty.dtype)
    wide = bb.emit(relax.op.astype(bb.emit(relax.op.astype(data, dtype)), "float32"))
    operator = {"sum": relax.op.cumsum, "prod": relax.op.cumprod}[KINDS[call.op.name]]
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    total = bb.emit(operator(wide, axis, "float32", bool(call.attrs.exclusive)))
    return relax.op.astype(total, dtype)
