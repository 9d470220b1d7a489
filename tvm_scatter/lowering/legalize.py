"""FLegalize for the scatter operators, and what installs and removes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tvm import relax
from tvm.target import Target

from tvm_scatter.bounds.device_check import CheckKind, check_before, check_beside, check_on_drop
from tvm_scatter.bounds.host_check import check_on_host
from tvm_scatter.emit.drop_signal import MakeSignal
from tvm_scatter.emit.index_check import IndexCheck
from tvm_scatter.ops.names import COPY_RANGES, NAMES, SELECT_ROWS, STOCK_OPERATORS
from tvm_scatter.ops.scatter_call import ScatterCall
from tvm_scatter.options import current_options
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.selection.strategy import OpStrategy, strategy_for

from .copy_ranges import copy_kernel, in_one_kernel
from .emission import build_prim_func, function_name, workspace_size
from .fallback import legalize_as_stock
from .legalizations import put_in_front, stock
from .lower import Lowered, lower
from .select_rows import select_kernel


def target_of(data: relax.Expr) -> Target | None:
    """The target that a call on data is compiled for: as it is annotated, else the current one."""
    vdevice = getattr(data.ty, "vdevice", None)
    if vdevice is not None and vdevice.target is not None:
        return vdevice.target
    return Target.current(allow_none=True)


def strategy_of(data: relax.Expr) -> tuple[Target, OpStrategy | None]:
    """The target that a call on data is compiled for, llvm if none is named, and its strategy."""
    target = target_of(data) or Target("llvm")
    return target, strategy_for(target.kind.name)


def legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Replace a scatter operator by the implementation that the strategy selects.

    TVM's own legalization is used where the strategy is switched off and for targets without one.

    Raises
    ------
    ScatterError
        For bad operands, and for what TVM has no operator for on a target without a strategy.
    """
    name = call.op.name
    if name == SELECT_ROWS:
        return select_kernel(bb, call)
    options = current_options()
    target, strategy = strategy_of(call.args[0])
    kind = target.kind.name
    if name in STOCK_OPERATORS and (strategy is None or not options.enabled):
        return stock[name](bb, call)
    scatter = ScatterCall.from_call(call)
    if name == COPY_RANGES and (strategy is None or in_one_kernel(scatter, kind)):
        return copy_kernel(bb, scatter)
    if strategy is None:
        return legalize_as_stock(bb, scatter, kind, stock)
    lowered = lower(bb, scatter, options, kind)
    return emit_call(bb, lowered, strategy, target, earlier=scatter.earlier)


def nothing_to_do(problem: ScatterProblem) -> bool:
    """Whether the result is the data as it is; bad indices are looked for all the same."""
    return problem.update_size.constant == 0 or problem.data_size.constant == 0


def check_alone(
    bb: relax.BlockBuilder, check: IndexCheck, strategy: OpStrategy, result: relax.Expr
) -> relax.Expr:
    """Emit a check of indices beside which nothing is computed; the result is itself."""
    if check.has_no_entries:
        return result
    if strategy.device_check is None:
        return check_on_host(bb, check, bb.emit(result))
    return check_beside(bb, check, strategy.device_check, lambda _: result)


def emit_call(
    bb: relax.BlockBuilder,
    lowered: Lowered,
    strategy: OpStrategy,
    target: Target,
    earlier: Sequence[relax.Expr] = (),
) -> relax.Expr:
    """Emit the selected implementation of a lowered call; the result is the new tensor.

    Parameters
    ----------
    earlier : sequence of relax.Expr
        Tensors that are computed before the call, because they read what it overwrites.
    """
    problem = lowered.problem
    if nothing_to_do(problem):
        if problem.bounds != "raise":
            return lowered.data
        return check_alone(bb, lowered.check, strategy, lowered.data)

    def scatter(
        posed: Lowered, *tokens: relax.Expr, make_signal: MakeSignal | None = None
    ) -> relax.Expr:
        waits = [*earlier, *tokens]
        return emit_together(bb, [posed], strategy, target, waits, make_signal)[0]

    if problem.bounds != "raise":
        return scatter(lowered)
    device_check = strategy.device_check
    if device_check is None:
        return scatter(lowered, check_on_host(bb, lowered.check))
    kind = CheckKind.of(problem, lowered.temporary)
    checked = replace(lowered, problem=replace(problem, bounds=kind.bounds))
    if kind is CheckKind.ON_DROP:
        return check_on_drop(
            bb,
            lowered.check,
            device_check,
            lambda make_signal, *memory: scatter(checked, *memory, make_signal=make_signal),
        )
    if kind is CheckKind.BESIDE:
        return check_beside(bb, lowered.check, device_check, partial(scatter, checked))
    return scatter(checked, check_before(bb, lowered.check, device_check))


def emit_together(
    bb: relax.BlockBuilder,
    lowered: Sequence[Lowered],
    strategy: OpStrategy,
    target: Target,
    tokens: Sequence[relax.Expr],
    make_signal: MakeSignal | None = None,
) -> list[relax.Expr]:
    """Emit one call for lowered scatters of one problem; the results are the new tensors.

    Parameters
    ----------
    make_signal : callable, optional
        What makes a signal of the last two tokens, which are memory for it.
    """
    problem, signature, count = lowered[0].problem, lowered[0].signature, len(lowered)
    selection = strategy.select(problem, target)
    inputs = [[each.data, *each.indices, each.updates] for each in lowered]
    arguments = [operand for operands in inputs for operand in operands] + list(tokens)
    func = build_prim_func(
        problem,
        signature,
        selection,
        target,
        tokens=len(tokens),
        scatters=count,
        make_signal=make_signal,
    )
    types: Any = [relax.TensorType(each.data.ty.shape, problem.data_dtype) for each in lowered]
    workspace = workspace_size(problem, selection, lowered[0].symbols)
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


def install_legalizations() -> None:
    """Put the strategy in front of TVM's legalization; harmless when it is there already."""
    put_in_front(STOCK_OPERATORS, legalize)
    put_in_front((*NAMES, SELECT_ROWS), legalize, ours=True)
