"""The ``FLegalize`` of the operator that orders updates by destination."""

from __future__ import annotations

from typing import Any

from tvm import relax, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.target import Target
from tvm.tirx.script import builder as T

from tvm_scatter.emit.index_check import IndexCheck
from tvm_scatter.emit.operands import Operands
from tvm_scatter.emit.ordering import DTYPE, Ordering
from tvm_scatter.emit.parameters import MADE_FOR, PRIM_FUNC_ATTRS, Parameters
from tvm_scatter.errors import ScatterError
from tvm_scatter.ops.ordering import ORDER, check_sizes
from tvm_scatter.ops.shapes import SymbolTable, no_elements
from tvm_scatter.options import current_options
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.signature import Dim, Signature
from tvm_scatter.problem.sizes import Sizes, at_least
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.selection.backend import backend_of

from . import recipes
from .ascending_order import ascending_order
from .emission import assert_few
from .legalizations import put_in_front
from .make import check_alone
from .target import target_of

#: The name of the number of offsets where it is symbolic; the extent is one less.
_OFFSETS, _EXTENT = "offsets", "extent"


def install_legalizations() -> None:
    """Install the legalization of the operator. Calling it again changes nothing."""
    put_in_front((ORDER,), legalize, ours=True)


def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Emit a check of the index where a bad one is an error, and then the sort.

    Raises
    ------
    ScatterError
        If nothing orders on the target, only the rank of the index is known, or there are more
        updates or destinations than an order can have.
    """
    index, (extent,) = call.args[0], call.args[1].values
    operator, wraps = str(call.attrs["operator"]), bool(call.attrs["wrap_negative"])
    target = target_of(index)
    backend = backend_of(target)
    if backend.ordering is None:
        raise ScatterError(f"{operator}: nothing orders updates on target {target.kind.name}.")
    symbols = SymbolTable()
    shape = symbols.shape(operator, index)
    destinations: Dim = int(extent) if isinstance(extent, int | tirx.IntImm) else _EXTENT
    # Sizes may be known by now that were symbolic when the order was asked for.
    check_sizes(operator, SymbolicSize.product(shape), SymbolicSize.product([destinations]))
    proved = bool(call.attrs["in_range"]) or bool(call.attrs["checked"])
    raises = not proved and backend.bounds_under(current_options()) == "raise"
    if raises and 0 not in shape:
        check = _check(bb, operator, index, extent, wraps)
        index = check_alone(bb, check, backend.device_check, index)
    if str(index.ty.dtype) == "uint64":
        index = bb.emit_te(recipes.signed, [index], primfunc_name_hint="signed_index")
    if bool(call.attrs["ascending"]):
        return relax.Tuple(ascending_order(bb, index, call.ty.fields))
    problem = _problem(shape, destinations, str(index.ty.dtype), wraps)
    func, workspace = _build(operator, problem, shape, backend.ordering, target)
    sizes = Sizes.of(problem, {**symbols.values, _EXTENT: extent})
    types = [*call.ty.fields, relax.TensorType([workspace(sizes)], "uint8", index.ty.vdevice)]
    made = bb.emit(relax.op.call_tir(bb.add_func(func, "order"), [index], types))
    return relax.Tuple([bb.emit(relax.TupleGetItem(made, at)) for at in range(2)])


def _check(
    bb: relax.BlockBuilder, operator: str, index: Any, extent: Any, wraps: bool
) -> IndexCheck:
    """The check of an index against an extent. A tensor that is only allocated has that size."""
    symbols = SymbolTable()
    room = bb.emit(no_elements(relax.TensorType([extent, 0], "int8", index.ty.vdevice)))
    data = symbols.shape(operator, room)
    return IndexCheck(
        operator=operator,
        data=room,
        data_shape=data,
        data_dtype="int8",
        indices=[index],
        shapes=(symbols.shape(operator, index),),
        extents=data[:1],
        interleaved=False,
        wrap_negative=wraps,
        index_dtypes=(str(index.ty.dtype),),
    )


def _problem(shape: tuple[Dim, ...], extent: Dim, index_dtype: str, wraps: bool) -> ScatterProblem:
    """The scatter of one number for each entry of an index."""
    return ScatterProblem(
        batch=SymbolicSize(),
        extents=(SymbolicSize.product([extent]),),
        slice=SymbolicSize(),
        count=SymbolicSize.product(shape),
        data_dtype=DTYPE,
        index_dtype=index_dtype,
        wrap_negative=wraps,
        bounds="drop",
    )


def _build(
    operator: str,
    problem: ScatterProblem,
    shape: tuple[Dim, ...],
    ordering: Ordering,
    target: Target,
) -> tuple[tirx.PrimFunc, Any]:
    """The function from an index to permutation, offsets and workspace, and that one's size."""

    def workspace(sizes: Sizes) -> Any:
        return at_least(ordering.workspace(problem, sizes, target), 16)

    items, static = problem.count, problem.is_static
    offsets: Dim = _OFFSETS if problem.extent.symbols else problem.extent.constant + 1
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_attr({**PRIM_FUNC_ATTRS, MADE_FOR: str(target.kind.name)})
        parameters = Parameters()
        parameters.add("index", shape, problem.index_dtype)
        parameters.add("permutation", (items.constant if items.is_static else "items",), DTYPE)
        parameters.add("offsets", (offsets,), DTYPE)
        size = workspace(Sizes.of(problem)) if static else "workspace_bytes"
        parameters.add("workspace", (size,), "uint8")
        with target, parameters.in_body() as (index, permutation, begins, scratch):
            symbols = dict(parameters.symbols)
            if _OFFSETS in symbols:
                symbols[_EXTENT] = symbols[_OFFSETS] - 1
            sizes = Sizes.of(problem, symbols)
            if not static:
                assert_few(operator, sizes)
            operands = Operands(
                problem=problem,
                signature=Signature(operator, (problem.extent.constant,), (shape,), ()),
                target=target,
                data=None,
                indices=[index],
                updates=permutation,
                out=permutation,
                workspace=scratch,
                sizes=sizes,
                overlaps=current_options().overlaps,
            )
            ordering.emit(operands, begins)
    return builder.get(), workspace
