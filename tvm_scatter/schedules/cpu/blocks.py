"""Reads functions of TVM: the one reduction in them, and what follows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx
from tvm.s_tir.dlight import SBlockInfo

from tvm_scatter.emit.expressions import counts_by_one
from tvm_scatter.lowering.row_reductions import has_parallel_axes_alone

from .inlining import inlined


@dataclass(frozen=True)
class Reduced:
    """A function that reduces once.

    Attributes
    ----------
    schedule : tvm.s_tir.Schedule
        The schedule, with all other computations inlined.
    block : SBlockInfo
        The reduction. The results are indexed by its data-parallel variables, in their order.
    epilogue : SBlockInfo or None
        What computes the function's result from the reduction's, if anything does.
    """

    schedule: s_tir.Schedule
    block: SBlockInfo
    epilogue: SBlockInfo | None

    @property
    def spatial(self) -> list[Any]:
        """The data-parallel variables."""
        return [each.var for each in self.block.iters if each.kind == "S"]

    @property
    def reduced(self) -> list[Any]:
        """The variables of the reduction."""
        return [each.var for each in self.block.iters if each.kind == "R"]

    def sizes(self) -> dict[Any, Any]:
        """The number of values of each variable, an integer or an expression."""
        return {each.var: each.dom for each in self.block.iters}

    def reads(self) -> list[list[Any]]:
        """The index expressions of each tensor that is read."""
        return indices_read(self.schedule.get(self.block.block_rv))

    def bits(self) -> int:
        """The size of a number of the result."""
        return int(self.schedule.get(self.block.block_rv).writes[0].source.dtype.bits)


def reduced(function: tirx.PrimFunc) -> Reduced | None:
    """The function's reduction, or ``None`` if it has none, or several."""
    if has_parallel_axes_alone(function):
        # To inline a long chain takes most of the time of its schedule.
        return None
    schedule = s_tir.Schedule(function)
    blocks = inlined(schedule)
    if not blocks or len(blocks) > 2 or blocks[0].is_injective():
        return None
    epilogue = blocks[1] if len(blocks) == 2 else None
    if epilogue is not None and not epilogue.is_injective():
        return None
    found = Reduced(schedule, blocks[0], epilogue)
    return found if _is_plain(found) else None


def _is_plain(found: Reduced) -> bool:
    """Whether results and epilogue are indexed by the data-parallel variables in their order."""
    block = found.schedule.get(found.block.block_rv)
    if len(block.writes) != 1 or "O" in found.block.dom_kind() or not found.reduced:
        return False
    if not _are(block.writes[0], found.spatial):
        return False
    if found.epilogue is None:
        return True
    after = found.schedule.get(found.epilogue.block_rv)
    variables = [each.var for each in found.epilogue.iters]
    for region in after.reads:
        if region.source.same_as(block.writes[0].source) and not _are(region, variables):
            return False
    return True


def indices_read(block: s_tir.SBlock) -> list[list[Any]]:
    """The index expressions of each tensor that a block reads."""
    return [[each.min for each in region.region] for region in block.reads]


def uses(expression: Any, variable: Any) -> bool:
    """Whether an index expression depends on a variable."""
    return any(each.same_as(variable) for each in tirx.analysis.undefined_vars(expression))


def is_read_along(reads: list[list[Any]], variable: Any) -> bool:
    """Whether any index expression of what is read depends on a variable."""
    return any(uses(each, variable) for indices in reads for each in indices)


def lie_side_by_side(reads: list[list[Any]], variable: Any) -> bool:
    """Whether what is read along a variable, if anything, is neighbours in memory."""
    return all(
        counts_by_one(indices[-1], variable)
        and not any(uses(each, variable) for each in indices[:-1])
        for indices in reads
        if any(uses(each, variable) for each in indices)
    )


def shared_by_all(found: Reduced, column: Any) -> int | None:
    """The last data-parallel variable on which nothing depends that is read along columns."""
    with_columns = [
        indices for indices in found.reads() if any(uses(each, column) for each in indices)
    ]
    for at in reversed(range(len(found.spatial) - 1)):
        if not is_read_along(with_columns, found.spatial[at]):
            return at
    return None


def _are(region: Any, variables: list[Any]) -> bool:
    """Whether the indices are the variables in their order, beside those of axes of one element."""
    indices = [each.min for each in region.region]
    varying = [each for each in indices if not isinstance(each, tirx.IntImm)]
    return len(varying) == len(variables) and all(
        index.same_as(variable) for index, variable in zip(varying, variables, strict=True)
    )
