"""The ``FLegalize`` of the operators whose size is the number of true entries of a mask.

The entries are counted, the host reads their number, and then the positions are written to a tensor
of that size.
"""

from __future__ import annotations

from math import prod
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.ir import Op
from tvm.script.ir_builder import IRBuilder
from tvm.target import Target
from tvm.tirx.script import builder as T

from tvm_scatter.emit.compaction import Compaction
from tvm_scatter.emit.host_stream import HostStream
from tvm_scatter.emit.kept_memory import device_id_of, page_locked, words_of
from tvm_scatter.emit.parameters import MADE_FOR, PRIM_FUNC_ATTRS, Parameters
from tvm_scatter.ops.compaction import TRUE_POSITIONS, is_true
from tvm_scatter.ops.shapes import SymbolTable, is_empty, no_elements
from tvm_scatter.problem.sizes import ceil_div
from tvm_scatter.selection.backend import backend_of

from .legalizations import put_in_front
from .target import target_of

#: TVM's operator, and the function of the host by which TVM computes it.
NONZERO = "relax.nonzero"
_ON_HOST = "relax.run.nonzero"


def install_legalizations() -> None:
    """Put the legalizations in front of TVM's. Calling it again changes nothing."""
    put_in_front([TRUE_POSITIONS], _legalize_positions, ours=True)
    put_in_front([NONZERO], _legalize_nonzero)
    if Op.get(NONZERO).get_attr("FDataDependent") is None:
        tvm.ir.register_op_attr(NONZERO, "FDataDependent", True)


def uninstall_legalizations() -> None:
    """Take back what makes TVM legalize its operator. The caller restores its legalization."""
    Op.get(NONZERO).reset_attr("FDataDependent")


def _legalize_positions(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    [mask] = call.args
    target = target_of(mask)
    compaction = backend_of(target).compaction
    if is_empty(mask):
        return no_elements(call.ty)
    if compaction is None:
        return _listed_on_host(bb, mask)
    return _listed(bb, mask, compaction, target)


def _legalize_nonzero(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    [tensor] = call.args
    target = target_of(tensor)
    compaction = backend_of(target).compaction
    if compaction is None:
        return _on_host(tensor, call.ty)
    shape = tensor.ty.shape.values
    if is_empty(tensor):
        return no_elements(relax.TensorType([max(len(shape), 1), 0], "int64", tensor.ty.vdevice))
    mask = (
        tensor
        if str(tensor.ty.dtype) == "bool"
        else bb.emit_te(is_true, tensor, primfunc_name_hint="is_true")
    )
    return bb.call_te(
        _coordinates,
        bb.emit(_listed(bb, mask, compaction, target)),
        list(shape),
        primfunc_name_hint="coordinates",
    )


def _listed_on_host(bb: relax.BlockBuilder, mask: relax.Expr) -> relax.Expr:
    flat, count = bb.emit(relax.op.reshape(mask, [-1])), tirx.Var("count", "int64")
    found = bb.emit(_on_host(flat, relax.TensorType(None, "int64", mask.ty.vdevice, 2)))
    found = bb.match_cast(found, relax.TensorType([1, count], "int64", mask.ty.vdevice))
    return relax.op.reshape(found, [count])


def _on_host(tensor: relax.Expr, type_: relax.TensorType) -> relax.Call:
    return relax.op.call_pure_packed(_ON_HOST, tensor, ty_args=type_)


def _coordinates(positions: te.Tensor, shape: list[Any]) -> te.Tensor:
    """The coordinates of flat positions: a row for each axis. A 0-d tensor counts as 1-d."""
    extents = shape or [tirx.IntImm("int64", 1)]
    strides = [
        prod(extents[axis + 1 :], start=tirx.IntImm("int64", 1)) for axis in range(len(extents))
    ]

    def coordinate(axis: Any, i: Any) -> Any:
        part = [
            tirx.floormod(tirx.floordiv(positions[i], stride), extent)
            for stride, extent in zip(strides, extents, strict=True)
        ]
        found = part[-1]
        for at in reversed(range(len(part) - 1)):
            found = tirx.Select(axis == at, part[at], found)
        return found

    return te.compute((len(extents), positions.shape[0]), coordinate, name="coordinate")


def _listed(
    bb: relax.BlockBuilder, mask: relax.Expr, compaction: Compaction, target: Target
) -> relax.Expr:
    counts, count = _count(bb, mask, compaction, target)
    return _write(bb, mask, counts, count, compaction, target)


def _count(
    bb: relax.BlockBuilder, mask: relax.Expr, compaction: Compaction, target: Target
) -> tuple[relax.Expr, Any]:
    """Emit the count: the number of true entries before each tile, and the number of all."""
    on_gpu = backend_of(target).is_gpu
    shape = SymbolTable().shape("true_positions", mask)
    tiles = _tiles(mask.ty.shape.values, compaction)
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_attr({**PRIM_FUNC_ATTRS, MADE_FOR: str(target.kind.name)})
        parameters = Parameters()
        parameters.add("mask", shape, "bool")
        handles = [T.arg(name, T.handle()) for name in ("device", "number")]
        parameters.add("counts", (_dim(tiles),), "int64")
        with parameters.in_body() as (entries, counts):
            number = words_of(handles[1], 1)
            compaction.count(entries, parameters.size(shape), counts, number)
            if on_gpu:
                HostStream(device_id_of(handles[0])).synchronize()
    func = bb.add_func(builder.get(), "count_true")
    count_type = relax.TensorType([1], "int64")
    counts_type = relax.TensorType([tiles], "int64", mask.ty.vdevice)
    arguments, types = [mask, mask], [count_type, counts_type]
    if on_gpu:
        # The host reads the number where the device has written it.
        arguments.append(page_locked(bb, 1))
        results = bb.emit(relax.op.call_tir_inplace(func, arguments, [2, -1], types))
    else:
        results = bb.emit(relax.op.call_tir(func, arguments, types))
    size = bb.emit(relax.op.tensor_to_shape(bb.emit(relax.TupleGetItem(results, 0))))
    count = tirx.Var("count", "int64")
    bb.match_cast(size, relax.ShapeType([count]))
    return bb.emit(relax.TupleGetItem(results, 1)), count


def _write(
    bb: relax.BlockBuilder,
    mask: relax.Expr,
    counts: relax.Expr,
    count: Any,
    compaction: Compaction,
    target: Target,
) -> relax.Expr:
    shape = SymbolTable().shape("true_positions", mask)
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_attr({**PRIM_FUNC_ATTRS, MADE_FOR: str(target.kind.name)})
        parameters = Parameters()
        parameters.add("mask", shape, "bool")
        parameters.add("counts", (_dim(counts.ty.shape.values[0]),), "int64")
        parameters.add("positions", ("count",), "int64")
        with parameters.in_body() as (entries, before, positions):
            compaction.write(entries, parameters.size(shape), before, positions)
    func = bb.add_func(builder.get(), "write_true")
    type_ = relax.TensorType([count], "int64", mask.ty.vdevice)
    return relax.op.call_tir(func, [mask, counts], type_)


def _tiles(shape: Any, compaction: Compaction) -> Any:
    """One more than the number of tiles: an ``int``, or an expression of symbolic sizes."""
    known = [int(dim) if isinstance(dim, tirx.IntImm) else dim for dim in shape]
    return ceil_div(prod(known), compaction.tile) + 1


def _dim(size: Any) -> int | str:
    return int(size) if isinstance(size, int | tirx.IntImm) else "tiles"
