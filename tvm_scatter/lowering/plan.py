"""How a call of a scatter operator is computed: decided here, and made elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from tvm import relax
from tvm.target import Target

from tvm_scatter.bounds.device_check import CheckKind
from tvm_scatter.ops.names import COPY_RANGES, STOCK_OPERATORS
from tvm_scatter.ops.scatter_call import ScatterCall
from tvm_scatter.options import Options
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.selection.strategy import OpStrategy, Selection, strategy_for

from .batched import earlier_of, is_batch, scatters_of
from .copy_ranges import in_one_kernel
from .draft import Lowered
from .fallback import need_stock, writes_nothing
from .lower import lower

_NOTHING = "there is nothing to write"


class Way(Enum):
    """How a scatter is computed.

    Attributes
    ----------
    STOCK
        By TVM's own operator.
    COPY
        By one function that reads each output from where it comes from.
    NOTHING
        The result is the data as it is.
    SCATTER
        By an implementation of this package.
    """

    STOCK = "stock"
    COPY = "copy"
    NOTHING = "nothing"
    SCATTER = "scatter"


@dataclass(frozen=True)
class Plan:
    """How a call is computed, and why.

    Attributes
    ----------
    call : relax.Call
        The call: of a scatter, or of several together.
    target : tvm.target.Target
        What it is compiled for.
    way : Way
        How it is computed.
    reason : str
        One clause.
    scatters : tuple of ScatterCall
        Those of the call. Empty where TVM's own operator stays as it is.
    lowered : tuple of Lowered
        The problem of each, and its operands, where the way needs them.
    selection : Selection or None
        The implementation, where one is needed.
    check : CheckKind or None
        Who looks for bad indices that must be reported; ``None`` if nobody does.
    earlier : tuple of relax.Expr
        Tensors that are computed before.
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
        """What the call asks for; scatters that are computed together ask for the same."""
        return self.lowered[0].problem if self.lowered else None

    @property
    def built(self) -> ScatterProblem:
        """What the function is built for: it need not know of indices that others look at."""
        return _built(self.lowered[0].problem, self.check)

    @property
    def symbols(self) -> dict[str, Any]:
        """The expression behind each symbolic size of the problem."""
        symbols = self.problem.symbols if self.problem is not None else ()
        return {name: self.lowered[0].symbols[name] for name in symbols}

    def one_by_one(self) -> list[Plan]:
        """The plans that compute the same, a scatter each."""
        return [
            replace(self, scatters=self.scatters[at : at + 1], lowered=self.lowered[at : at + 1])
            for at in range(len(self.scatters))
        ]


def plan(call: relax.Call, target: Target, options: Options) -> Plan:
    """Decide how a call of a scatter operator, or of several together, is computed.

    Nothing is emitted, and two plans of one call are equal.

    Raises
    ------
    ScatterError
        If operands do not fit each other, the caller forces what cannot compute the call, or there
        is neither an implementation for the target nor an operator of TVM.
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
        need_stock(first, kind)
        return Plan(call, target, Way.STOCK, unserved, tuple(scatters))
    return _own(call, target, options, strategy, scatters)


def _own(
    call: relax.Call,
    target: Target,
    options: Options,
    strategy: OpStrategy,
    scatters: Sequence[ScatterCall],
) -> Plan:
    """The plan for what this package computes."""
    lowered = tuple(lower(scatter, options, target.kind.name) for scatter in scatters)
    problem = lowered[0].problem
    check = _check_kind(lowered[0], strategy)
    selection = None
    if nothing_to_do(problem):
        way = Way.NOTHING
        reason = f"{_NOTHING}; indices are checked" if check else _NOTHING
    else:
        way = Way.SCATTER
        selection = strategy.select(_built(problem, check), target, options)
        reason = selection.reason
    earlier = earlier_of(call) if is_batch(call) else scatters[0].earlier
    return Plan(call, target, way, reason, tuple(scatters), lowered, selection, check, earlier)


def nothing_to_do(problem: ScatterProblem) -> bool:
    """Whether the result is the data as it is; bad indices are looked for all the same."""
    return problem.update_size.constant == 0 or problem.data_size.constant == 0


def _check_kind(lowered: Lowered, strategy: OpStrategy) -> CheckKind | None:
    """Who looks for bad indices that must be reported."""
    nothing = nothing_to_do(lowered.problem)
    if lowered.problem.bounds != "raise" or (nothing and lowered.check.has_no_entries):
        return None
    if strategy.device_check is None:
        return CheckKind.HOST
    return CheckKind.BESIDE if nothing else CheckKind.of(lowered.problem, lowered.temporary)


def _built(problem: ScatterProblem, check: CheckKind | None) -> ScatterProblem:
    return problem if check is None else replace(problem, bounds=check.bounds)
