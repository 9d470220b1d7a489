"""The ``FLegalize`` of the grouped product."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx
from tvm.relax.backend.utils import BackendDispatcher

from tvm_scatter.ops.grouped_product import GROUPED_PRODUCT
from tvm_scatter.ops.shapes import is_empty, known_shape, no_elements

from .grouped_product import cpu, gpu
from .grouped_product.groups import Problem
from .legalizations import put_in_front
from .target import target_of


def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Emit a function for the kind of target, or a plain sum where sizes are symbolic."""
    target = target_of(call.args[0])
    if is_empty(call):
        return no_elements(call.ty)
    problem = _problem(call)
    if problem is None or not {"llvm", "gpu"} & {target.kind.name, *target.keys}:
        return bb.call_te(_plain, *call.args, primfunc_name_hint="grouped_product")
    build = gpu.build if BackendDispatcher.is_gpu_target(target) else cpu.build
    func = bb.add_func(build(problem, target.kind.name), "grouped_product")
    return relax.op.call_tir(func, list(call.args), call.ty)


def install_legalizations() -> None:
    """Put :func:`legalize` in front. Calling it again changes nothing."""
    put_in_front((GROUPED_PRODUCT,), legalize, ours=True)


def _problem(call: relax.Call) -> Problem | None:
    """The problem, unless another size than the number of rows is symbolic."""
    rows, matrices, ends = call.args
    count = known_shape("grouped_product", rows)[0]
    sizes = known_shape("grouped_product", matrices)
    if not all(isinstance(size, int | tirx.IntImm) for size in sizes):
        return None
    groups, inner, columns = map(int, sizes)
    number = int(count) if isinstance(count, int | tirx.IntImm) else "count"
    dtypes = str(rows.ty.dtype), str(ends.ty.dtype)
    return Problem(number, inner, columns, groups, *dtypes)


def _plain(rows: te.Tensor, matrices: te.Tensor, ends: te.Tensor) -> te.Tensor:
    """Each element by itself: a row's group is the number of groups that end before it."""
    (count, inner), (groups, _, columns) = rows.shape, matrices.shape
    g = te.reduce_axis((0, groups), "g")
    group = te.compute(
        (count,),
        lambda i: te.sum(tirx.if_then_else(ends[g] <= i, 1, 0).astype("int64"), axis=g),
        name="group",
    )
    k = te.reduce_axis((0, inner), "k")

    def product(i: Any, n: Any) -> Any:
        at = tirx.min(group[i], groups - 1)
        inside = group[i] < groups
        value = rows[i, k] * matrices[at, k, n]
        return te.sum(tirx.if_then_else(inside, value, tirx.const(0, rows.dtype)), axis=k)

    return te.compute((count, columns), product, name="grouped_product")
