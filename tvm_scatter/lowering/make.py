"""Carries out a plan: emits Relax calls of the functions that compute it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from tvm_scatter.bounds.device_check import CheckKind, check_before, check_beside, check_on_drop
from tvm_scatter.bounds.host_check import check_on_host
from tvm_scatter.emit.drop_signal import MakeSignal
from tvm_scatter.emit.index_check import DeviceCheck, IndexCheck
from tvm_scatter.errors import ScatterError
from tvm_scatter.ops.names import STOCK_OPERATORS
from tvm_scatter.ops.scatter_call import ScatterCall
from tvm_scatter.selection.backend import backend_of

from .batched import is_batch
from .copy_ranges import copy_kernel
from .draft import Lowered
from .emission import build_prim_func, function_name, workspace_size
from .fallback import legalize_as_stock
from .legalizations import stock
from .operands import Fused, Made
from .plan import Plan, Way


def make(bb: relax.BlockBuilder, plan: Plan) -> relax.Expr:
    """Emit the calls that a plan asks for. The result replaces the planned call.

    Raises
    ------
    ScatterError
        If the plan is that the call is refused.
    """
    if plan.way is Way.REFUSED:
        raise ScatterError(plan.reason)
    if plan.way is Way.STOCK and plan.call.op.name in STOCK_OPERATORS:
        return stock[plan.call.op.name](bb, plan.call)
    made = Made(bb)
    for lowered in plan.lowered:
        for operand in lowered.derived:
            made.of(operand)
    if not is_batch(plan.call):
        return _one(bb, plan, made)
    if plan.way is Way.SCATTER and plan.check is None:
        results = _call(bb, plan, made, plan.earlier)
    else:
        results = [_one(bb, each, made) for each in plan.one_by_one()]
    return relax.Tuple([bb.emit(result) for result in results])


def check_alone(
    bb: relax.BlockBuilder, check: IndexCheck, device_check: DeviceCheck | None, result: relax.Expr
) -> relax.Expr:
    """Emit a check of indices and return ``result``, which needs no further computation."""
    if device_check is None:
        return check_on_host(bb, check, bb.emit(result))
    return check_beside(bb, check, device_check, lambda _: result)


def _one(bb: relax.BlockBuilder, plan: Plan, made: Made) -> relax.Expr:
    """Emit one scatter and return the new tensor."""
    [scatter] = plan.scatters
    if plan.way is Way.STOCK:
        return _with_epilogue(bb, scatter, legalize_as_stock(bb, scatter, stock))
    if plan.way is Way.COPY:
        return copy_kernel(bb, scatter)
    if plan.way is Way.NOTHING:
        return _with_epilogue(bb, scatter, _nothing(bb, plan, made))
    return _checked(bb, plan, made)


def _with_epilogue(bb: relax.BlockBuilder, scatter: ScatterCall, own: relax.Expr) -> relax.Expr:
    """What a scatter returns whose own result is computed apart."""
    if scatter.epilogue is None:
        return own
    function = bb.add_func(scatter.epilogue.function, "epilogue")
    return relax.op.call_tir(function, [bb.emit(own), *scatter.epilogue.leaves], scatter.ty)


def _nothing(bb: relax.BlockBuilder, plan: Plan, made: Made) -> relax.Expr:
    if not plan.lowered:
        return plan.scatters[0].data
    [lowered] = plan.lowered
    data = made.of(lowered.data)
    if plan.check is None:
        return data
    device_check = backend_of(plan.target).device_check
    return check_alone(bb, made.index_check(lowered.check), device_check, data)


def _checked(bb: relax.BlockBuilder, plan: Plan, made: Made) -> relax.Expr:
    """Emit a scatter and its check, in the order that the kind of check needs."""

    def scatter(*tokens: relax.Expr, make_signal: MakeSignal | None = None) -> relax.Expr:
        return _call(bb, plan, made, [*plan.earlier, *tokens], make_signal)[0]

    if plan.check is None:
        return scatter()
    [lowered] = plan.lowered
    check = made.index_check(lowered.check)
    device_check = backend_of(plan.target).device_check
    if device_check is None:
        return scatter(check_on_host(bb, check))
    if plan.check is CheckKind.ON_DROP:
        return check_on_drop(
            bb,
            check,
            device_check,
            lambda make_signal, *memory: scatter(*memory, make_signal=make_signal),
        )
    if plan.check is CheckKind.BESIDE:
        return check_beside(bb, check, device_check, scatter)
    return scatter(check_before(bb, check, device_check))


def _call(
    bb: relax.BlockBuilder,
    plan: Plan,
    made: Made,
    tokens: Sequence[relax.Expr],
    make_signal: MakeSignal | None = None,
) -> list[relax.Expr]:
    """Emit one call for all scatters of a plan and return the new tensors.

    Parameters
    ----------
    tokens : sequence of relax.Expr
        Tensors that must be computed before the call.
    make_signal : callable, optional
        Makes the drop signal from the last two tokens, which are its memory.
    """
    problem, selection, count = plan.built, plan.selection, len(plan.lowered)
    assert selection is not None, "what scatters has a selection"
    inputs = [
        [made.of(operand) for operand in (each.data, *each.indices, *each.ordering)]
        + _updates(each, made)
        + [made.of(other) for other in each.others]
        for each in plan.lowered
    ]
    arguments = [operand for operands in inputs for operand in operands] + list(tokens)
    func = build_prim_func(
        problem,
        plan.lowered[0].signature,
        selection,
        plan.target,
        tokens=len(tokens),
        scatters=count,
        make_signal=make_signal,
        producer=plan.lowered[0].producer,
        epilogue=plan.lowered[0].epilogue,
    )
    types: Any = [
        each.result or relax.TensorType(data.ty.shape, problem.data_dtype)
        for each, (data, *_) in zip(plan.lowered, inputs, strict=True)
    ]
    workspace = workspace_size(problem, selection, plan.lowered[0].symbols, plan.target)
    global_var = bb.add_func(func, function_name(problem, selection))
    if workspace is not None:
        types += [relax.TensorType((workspace,), "uint8")] * count
    types_out = types if len(types) > 1 else types[0]
    if problem.in_place:
        places = [at * len(inputs[0]) for at in range(count)]
        places += [-1] * (len(types) - count)
        call = relax.op.call_tir_inplace(global_var, arguments, places, types_out)
    else:
        call = relax.op.call_tir(global_var, arguments, types_out)
    if len(types) == 1:
        return [call]
    results = bb.emit(call)
    return [relax.TupleGetItem(results, at) for at in range(count)]


def _updates(lowered: Lowered, made: Made) -> list[relax.Expr]:
    """The tensor of the updates, or those that they are computed from."""
    if lowered.producer is None:
        return [made.of(lowered.updates)]
    assert isinstance(lowered.updates, Fused), "what has a producer is fused"
    return list(lowered.updates.updates.leaves)
