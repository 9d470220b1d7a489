"""Decides how a call of a scatter operator is computed. The module ``make`` emits the code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from tvm import relax
from tvm.target import Target

from tvm_scatter.bounds.device_check import CheckKind
from tvm_scatter.errors import ScatterError
from tvm_scatter.ops.names import COPY_RANGES, STOCK_OPERATORS
from tvm_scatter.ops.scatter_call import ScatterCall
from tvm_scatter.options import Options
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.selection.strategy import OpStrategy, Selection, strategy_for

from .batched import earlier_of, is_batch, scatters_of
from .copy_ranges import in_one_kernel
from .draft import Lowered
from .fallback import stock_refusal, writes_nothing
from .lower import lower

_NOTHING = "there is nothing to write"


class Way(Enum):
    """How a scatter is computed.

    Attributes
    ----------
    STOCK
        By TVM's own operator.
    COPY
        By one function that reads each output element from its source or from the data.
    NOTHING
        The result is the data, unchanged.
    SCATTER
        By an implementation of this package.
    REFUSED
        Not at all: compiling it is an error.
    """

    STOCK = "stock"
    COPY = "copy"
    NOTHING = "nothing"
    SCATTER = "scatter"
    REFUSED = "refused"


@dataclass(frozen=True)
class Plan:
    """How a call is computed, and why.

    Attributes
    ----------
    call : relax.Call
        The call: a scatter, or a batch of scatters.
    target : tvm.target.Target
        The target that the call is compiled for.
    way : Way
        How it is computed.
    reason : str
        Why, in one clause.
    scatters : tuple of ScatterCall
        The scatters of the call. Empty if a call of TVM's own operator is left to TVM.
    lowered : tuple of Lowered
        The problem and the operands of each scatter. Empty if the way does not need them, as
        ``STOCK`` and ``COPY`` do not.
    selection : Selection or None
        The selected implementations; ``None`` if the way is not ``SCATTER``.
    check : CheckKind or None
        How bad indices are found that must be reported; ``None`` if none must be.
    earlier : tuple of relax.Expr
        Tensors that must be computed before the call.
    """

    call: relax.Call = field(compare=False)
    target: Target = field(compare=False)
    way: Way
    reason: str
    scatters: tuple[ScatterCall, ...] = field(default=(), compare=False)
    lowered: tuple[Lowered, ...] = ()
    selection: Selection | None = None
    check: CheckKind | None = None
    earlier: tuple[Any, ...] = ()

    @property
    def problem(self) -> ScatterProblem | None:
        """The problem of the call. All scatters of a batch have the same problem."""
        return self.lowered[0].problem if self.lowered else None

    @property
    def built(self) -> ScatterProblem:
        """The problem that the function is compiled for.

        Its bounds policy is weaker than that of the call if a separate check finds bad indices.
        """
        return _built(self.lowered[0].problem, self.check)

    @property
    def symbols(self) -> dict[str, Any]:
        """The expression for each symbolic size of the problem."""
        symbols = self.problem.symbols if self.problem is not None else ()
        return {name: self.lowered[0].symbols[name] for name in symbols}

    def one_by_one(self) -> list[Plan]:
        """One plan for each scatter of a batch."""
        return [
            replace(self, scatters=self.scatters[at : at + 1], lowered=self.lowered[at : at + 1])
            for at in range(len(self.scatters))
        ]


def plan(call: relax.Call, target: Target, options: Options) -> Plan:
    """Decide how a call of a scatter operator or of a batch is computed.

    Nothing is emitted. Planning the same call twice gives equal plans.

    Raises
    ------
    ScatterError
        If the operands are not valid together, or an option forces an implementation that cannot
        compute the call.
    """
    kind = target.kind.name
    strategy = strategy_for(kind)
    unserved = f"there is no strategy for target {kind}; TVM's own operator is used"
    if call.op.name in STOCK_OPERATORS:
        if strategy is None:
            return Plan(call, target, Way.STOCK, unserved)
        if not options.enabled:
            reason = "the strategy is switched off; TVM's own operator is used"
            return Plan(call, target, Way.STOCK, reason)
    scatters = scatters_of(call) if is_batch(call) else [ScatterCall.from_call(call)]
    first = scatters[0]
    if first.form == COPY_RANGES and (strategy is None or in_one_kernel(first, kind, options)):
        reason = "all positions are known: one launch reads each output from where it comes from"
        return Plan(call, target, Way.COPY, reason, tuple(scatters))
    if strategy is None:
        if writes_nothing(first):
            return Plan(call, target, Way.NOTHING, _NOTHING, tuple(scatters))
        refusal = stock_refusal(first, kind)
        way = Way.STOCK if refusal is None else Way.REFUSED
        return Plan(call, target, way, refusal or unserved, tuple(scatters))
    return _own(call, target, options, strategy, scatters)


def _own(
    call: relax.Call,
    target: Target,
    options: Options,
    strategy: OpStrategy,
    scatters: Sequence[ScatterCall],
) -> Plan:
    """The plan for a call that this package computes."""
    lowered = tuple(lower(scatter, options, target.kind.name) for scatter in scatters)
    lowered = tuple(_orderable(each, options, strategy) for each in lowered)
    problem = lowered[0].problem
    check = _check_kind(lowered[0], strategy)
    selection = None
    if nothing_to_do(problem):
        way = Way.NOTHING
        reason = f"{_NOTHING}; indices are checked" if check else _NOTHING
    else:
        way = Way.SCATTER
        lowered = tuple(_fusable(each, options, strategy) for each in lowered)
        problem = lowered[0].problem
        selection = strategy.select(_built(problem, check), target, options)
        reason = selection.reason
    earlier = earlier_of(call) if is_batch(call) else scatters[0].earlier
    return Plan(call, target, way, reason, tuple(scatters), lowered, selection, check, earlier)


def _fusable(lowered: Lowered, options: Options, strategy: OpStrategy) -> Lowered:
    """The call, with updates in a tensor if the caller forces an implementation that needs one."""
    forced = strategy.implementations.get(options.implementation or "")
    if forced is None or forced.fuses:
        return lowered
    return lowered.with_stored_updates()


def _orderable(lowered: Lowered, options: Options, strategy: OpStrategy) -> Lowered:
    """The call, without its ordering if no implementation takes it that the caller allows."""
    forced = strategy.implementations.get(options.implementation or "")
    allowed = list(strategy.implementations.values()) if forced is None else [forced]
    if not lowered.ordering or any(each.takes_ordering for each in allowed):
        return lowered
    if not lowered.problem.order_alone:
        return lowered.without_ordering()
    if forced is None:
        # Whoever selects says for each why it does not take the problem.
        return lowered
    others = [name for name, each in strategy.implementations.items() if each.takes_order_alone]
    raise ScatterError(
        f"{lowered.signature.operator}: implementation={options.implementation!r} reads the index, "
        "of which the passes have left only the order; it must be forced before the passes run, or "
        f"be {' or '.join(map(repr, others))}."
    )


def nothing_to_do(problem: ScatterProblem) -> bool:
    """Whether no element is written, so that the result is the data.

    Bad indices are still an error under ``raise``.
    """
    return problem.is_empty or problem.update_size.constant == 0


def _check_kind(lowered: Lowered, strategy: OpStrategy) -> CheckKind | None:
    """How bad indices are found that must be reported; ``None`` if none must be."""
    nothing = nothing_to_do(lowered.problem)
    if lowered.problem.bounds != "raise" or (nothing and lowered.check.has_no_entries):
        return None
    if strategy.device_check is None:
        return CheckKind.HOST
    return CheckKind.BESIDE if nothing else CheckKind.of(lowered.problem, lowered.temporary)


def _built(problem: ScatterProblem, check: CheckKind | None) -> ScatterProblem:
    return problem if check is None else replace(problem, bounds=check.bounds)
