"""Builds a PrimFunc from a selection: the parameters, and inside them the implementations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_scatter.emit.computed_result import ComputedResult
from tvm_scatter.emit.computed_updates import ComputedUpdates, Producer
from tvm_scatter.emit.drop_signal import MakeSignal
from tvm_scatter.emit.first_of import emit_first
from tvm_scatter.emit.kept import with_wrapping
from tvm_scatter.emit.operands import Operands
from tvm_scatter.emit.ordering import DTYPE as ORDERING_DTYPE
from tvm_scatter.emit.ordering import LIMIT
from tvm_scatter.emit.parameters import MADE_FOR, PRIM_FUNC_ATTRS, Parameters
from tvm_scatter.emit.single_precision import compute_in_single_precision
from tvm_scatter.errors import ScatterError
from tvm_scatter.options import current_options
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.signature import Dim, Signature
from tvm_scatter.problem.sizes import Sizes, at_least
from tvm_scatter.selection.backend import backend_of
from tvm_scatter.selection.strategy import Branch, Selection


def build_prim_func(
    problem: ScatterProblem,
    signature: Signature,
    selection: Selection,
    target: Any,
    tokens: int = 0,
    scatters: int = 1,
    make_signal: MakeSignal | None = None,
    producer: Producer | None = None,
    epilogue: Producer | None = None,
) -> tirx.PrimFunc:
    """Build the function that computes a problem by the selected implementations.

    Parameters
    ----------
    tokens : int
        The number of additional arguments in front of the output. TVM computes them before it
        calls the function.
    scatters : int
        The number of scatters that the function computes, each with its own operands.
    make_signal : callable, optional
        Makes the drop signal from the last two tokens, which are passed as bare handles. Other
        tokens are not used in the function.
    producer : Producer, optional
        How the updates are computed where they are read. Its leaves are then parameters in place
        of the updates.
    epilogue : Producer, optional
        How the result is computed where it is written. Its leaves behind the scatter's own result
        are parameters behind the updates.

    Returns
    -------
    func : tvm.tirx.PrimFunc
        Its parameters are data, indices and updates of each scatter, the tokens, the output of
        each scatter and, if it is needed, the workspace of each. If the problem is in place, data
        is the output, and there is no other. The function has no name: the module gives it one.
    """
    workspace_bytes = workspace_size(problem, selection, dict.fromkeys(problem.symbols, 1), target)
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_attr({**PRIM_FUNC_ATTRS, MADE_FOR: str(target.kind.name)})
            parameters = Parameters()
            parts = _Parts(problem, signature, producer, epilogue, parameters)
            suffixes = ["", *(f"_{each}" for each in range(1, scatters))]
            for suffix in suffixes:
                parts.declare_inputs(suffix)
            handles = [T.arg(f"token{i}", T.handle()) for i in range(tokens)]
            if not problem.in_place:
                for suffix in suffixes:
                    dtype = problem.epilogue or problem.data_dtype
                    parameters.add(f"out{suffix}", signature.result, dtype)
            if workspace_bytes is not None:
                size = workspace_bytes if problem.is_static else "workspace_bytes"
                for suffix in suffixes:
                    parameters.add(f"workspace{suffix}", (size,), "uint8")
            # An implementation may use the current target, as TVM's own operators do.
            with target, parameters.in_body() as buffers:
                sizes = Sizes.of(problem, parameters.symbols)
                if problem.ordered and not problem.is_static:
                    _expect_ordering(signature.operator, problem, sizes, parameters.symbols)
                named = dict(zip(parameters.names, buffers, strict=True))
                operands = [parts.operands(suffix, named, sizes, target) for suffix in suffixes]
                signal = make_signal(*handles[-2:]) if make_signal else None
                for scatter in _together(operands, target):
                    scatter = replace(scatter, drop_signal=signal)
                    _emit_branches(scatter, list(selection.branches))
                if signal is not None:
                    signal.close()
    return builder.get()


@dataclass(frozen=True)
class _Parts:
    """The parameters that are one scatter's. Their names end with its suffix."""

    problem: ScatterProblem
    signature: Signature
    producer: Producer | None
    epilogue: Producer | None
    parameters: Parameters

    def declare_inputs(self, suffix: str) -> None:
        """Declare what the scatter reads."""
        problem, add = self.problem, self.parameters.add
        add(f"data{suffix}", self.signature.data, problem.data_dtype)
        for i, shape in enumerate(self.signature.indices):
            add(f"index{i}{suffix}", shape, problem.index_dtype)
        for name, shape in _ordering(problem).items():
            add(f"{name}{suffix}", shape, ORDERING_DTYPE)
        if self.producer is None:
            add(f"updates{suffix}", self.signature.updates, problem.data_dtype)
        else:
            for i, shape in enumerate(self.producer.leaves):
                add(f"leaf{i}{suffix}", shape, self.producer.dtypes[i])
        if self.epilogue is not None:
            for i, shape in enumerate(self.epilogue.leaves[1:]):
                add(f"other{i}{suffix}", shape, self.epilogue.dtypes[i + 1])

    def operands(
        self, suffix: str, named: Mapping[str, Any], sizes: Sizes, target: Any
    ) -> Operands:
        """What an implementation gets, from the parameters by name."""
        problem = self.problem
        data = named[f"data{suffix}"]
        return Operands(
            problem=problem,
            signature=self.signature,
            target=target,
            data=None if problem.in_place else data,
            indices=[named[f"index{i}{suffix}"] for i in range(len(self.signature.indices))],
            updates=self._updates(suffix, named, target),
            out=data if problem.in_place else named[f"out{suffix}"],
            workspace=named.get(f"workspace{suffix}"),
            sizes=sizes,
            overlaps=current_options().overlaps,
            ordering=[named[f"{name}{suffix}"] for name in _ordering(problem)],
            result=self._result(suffix, named, target),
        )

    def _updates(self, suffix: str, named: Mapping[str, Any], target: Any) -> Any:
        if self.producer is None:
            return named[f"updates{suffix}"]
        leaves = [named[f"leaf{i}{suffix}"] for i in range(len(self.producer.leaves))]
        updates = ComputedUpdates(self.producer, leaves, self.parameters.symbols)
        _wrap_around(updates, target)
        single = backend_of(target).widens_bfloat16
        return compute_in_single_precision(updates) if single else updates

    def _result(self, suffix: str, named: Mapping[str, Any], target: Any) -> ComputedResult | None:
        if self.epilogue is None:
            return None
        others = [named[f"other{i}{suffix}"] for i in range(len(self.epilogue.leaves) - 1)]
        result = ComputedResult(self.epilogue, others, self.parameters.symbols)
        _wrap_around(result, target)
        return result


def _wrap_around(computed: ComputedUpdates, target: Any) -> None:
    """Let integers wrap around where a compiler takes them never to overflow."""
    if not backend_of(target).is_gpu:
        computed.value, computed.logit, computed.term = (
            None if each is None else with_wrapping(each)
            for each in (computed.value, computed.logit, computed.term)
        )


def _ordering(problem: ScatterProblem) -> dict[str, tuple[Dim, ...]]:
    """The shapes of the tensors that say the order of the updates, if it is given."""
    if not problem.is_static:
        return {name: (f"{name}_size",) for name in problem.ordering}
    known = {"permutation": problem.count.constant, "offsets": problem.extent.constant + 1}
    return {name: (known[name],) for name in problem.ordering}


def _expect_ordering(
    operator: str, problem: ScatterProblem, sizes: Sizes, symbols: Mapping[str, Any]
) -> None:
    """Check the sizes of an ordering at run time."""
    wanted = {"permutation": sizes.items, "offsets": sizes.destinations + 1}
    for name in problem.ordering:
        message = f"{operator}: the {name} of ordering must be those of the index and the extent"
        with T.Assert(symbols[f"{name}_size"] == wanted[name], message):
            pass
    assert_few(operator, sizes)


def assert_few(operator: str, sizes: Sizes) -> None:
    """Emit an assertion that there are as few updates and destinations as an order can have."""
    most = tirx.max(sizes.items, sizes.destinations)
    message = f"{operator}: an order must be of fewer than {LIMIT} updates and destinations"
    with T.Assert(most < tirx.IntImm("int64", LIMIT), message):
        pass


def _together(operands: Sequence[Operands], target: Any) -> list[Operands]:
    """The operands to emit code for: all scatters in one if a launch can serve them together."""
    if not backend_of(target).launches_together:
        return list(operands)
    return [replace(operands[0], others=tuple(operands[1:]))]


def _emit_branches(operands: Operands, branches: Sequence[Branch]) -> None:
    """Emit a choice: the branch that is predicted to take least computes the problem."""
    if len(branches) == 1:
        _emit_branch(operands, branches[0])
        return
    times = []
    for branch in branches:
        assert branch.predict is not None
        times.append(T.bind(branch.predict(operands.sizes).microseconds))
    # Of equals the first. TVM's simplifier puts what is bound in the place of its name: the least
    # so far would be an expression that doubles with each branch, and take it minutes.
    least = [
        tirx.all(*(time <= other for other in times[at + 1 :]))
        for at, time in enumerate(times[:-1])
    ]
    *emits, last = (partial(_emit_branch, operands, branch) for branch in branches)
    emit_first(list(zip(least, emits, strict=True)), last)


def _emit_branch(operands: Operands, branch: Branch) -> None:
    """Emit an implementation. With a drop signal, one of its launches must read the indices."""
    signal = operands.drop_signal
    readers = signal.readers if signal else 0
    given = branch.implementation.given(operands.problem)
    if operands.problem.fill and not given.fill:
        fill = backend_of(operands.target).fill
        assert fill is not None, "what nothing fills is refused"
        fill(operands)
    branch.implementation.emit(_given(operands, given), branch.config)
    if operands.result is not None and not given.epilogue:
        finish = backend_of(operands.target).finish
        assert finish is not None, "what nothing finishes is refused"
        finish(operands)
    if signal and signal.readers == readers:
        raise ScatterError(
            f"scatter: implementation {branch.implementation.name!r} has no launch that reads the "
            "indices, so the host would not hear of a bad one; its kernels must be launched by "
            "`launch`."
        )


def _given(operands: Operands, problem: ScatterProblem) -> Operands:
    """The operands of a part of a problem: where it is in place, the output holds the data."""
    if problem == operands.problem:
        return operands
    data = None if problem.in_place else operands.data
    result = operands.result if problem.epilogue else None
    others = tuple(_given(each, problem) for each in operands.others)
    return replace(operands, problem=problem, data=data, result=result, others=others)


def workspace_size(
    problem: ScatterProblem, selection: Selection, symbols: dict[str, Any], target: Any
) -> Any:
    """Bytes of workspace that the selection needs, or ``None`` if it needs none.

    The values of the symbols do not decide whether it is ``None``.
    """
    sizes = Sizes.of(problem, symbols)
    result: Any = None
    for branch in selection.branches:
        implementation = branch.implementation
        given = implementation.given(problem)
        size = implementation.workspace(given, sizes, branch.config, target)
        if isinstance(size, int) and size == 0:
            continue
        if result is None:
            result = size
        elif isinstance(result, int) and isinstance(size, int):
            result = max(result, size)
        else:
            result = tirx.max(result, size)
    return None if result is None else at_least(result, 16)


def function_name(problem: ScatterProblem, selection: Selection) -> str:
    """A name for profilers and for people: the reduction and the implementations."""
    names = "_or_".join(dict.fromkeys(branch.implementation.name for branch in selection.branches))
    return re.sub(r"\W", "_", f"scatter_{problem.reduction}_{names}")
