"""Finds the elementwise operators behind a scatter that nothing else needs the inside of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm_scatter.lowering.inlined import ELEMENTWISE, RESHAPES, operands_of
from tvm_scatter.ops.called import operator_of
from tvm_scatter.ops.shapes import same_shape, static_shape
from tvm_scatter.problem.reductions import DATA_DTYPES

from .bindings import Binding, Bindings
from .effects import may_write

_PRODUCT = "relax.matmul"


@dataclass(frozen=True)
class Followers:
    """Operators whose last result is all that is read of a scatter's result.

    Attributes
    ----------
    scatter : Binding
        The scatter.
    bindings : tuple of Binding
        The operators, in the order in which they run. The last one's result is as large as the
        scatter's, and each of its elements depends on the element at the same place alone.
    operands : tuple of Binding
        Elementwise operators, in that order, whose results only those read.
    """

    scatter: Binding
    bindings: tuple[Binding, ...]
    operands: tuple[Binding, ...]

    @property
    def last(self) -> Binding:
        """The operator whose result is read."""
        return self.bindings[-1]


class FollowerSearch:
    """What follows scatters of one function.

    Parameters
    ----------
    bindings : Bindings
        Those of the function.
    """

    def __init__(self, bindings: Bindings) -> None:
        self._bindings = bindings
        self._readers = bindings.readers()
        self._products = {each.var for each in bindings if operator_of(each.value) == _PRODUCT}

    def behind(self, scatter: Binding, taken: Collection[Any] = ()) -> Followers | None:
        """The operators that follow a scatter, as many as possible; ``None`` if there are none.

        Parameters
        ----------
        scatter : Binding
            A scatter of the function.
        taken : collection of relax.Var
            Results of operators that follow other scatters.
        """
        behind = _behind(scatter, self._bindings, taken)
        for last in reversed(list(behind.values())):
            chain = _up_to(last, behind)
            within = {each.at for each in chain}
            inside = {scatter.var, *(each.var for each in chain)} - {last.var}
            if _can_be_written(last.var) and all(self._reads_all(var, within) for var in inside):
                return Followers(scatter, tuple(chain), self._operands(scatter, chain, taken))
        return None

    def _reads_all(self, var: Any, within: Collection[int]) -> bool:
        """Whether only operators at some places read a variable."""
        return var not in self._bindings.returned and all(
            each.at in within for each in self._readers.get(var, ())
        )

    def _operands(
        self, scatter: Binding, chain: Sequence[Binding], taken: Collection[Any]
    ) -> tuple[Binding, ...]:
        """The elementwise operators whose results only those of a chain read, or each other.

        What follows a product stays there: TVM computes it where the product is written.
        """
        within = {each.at for each in chain}
        found: list[Binding] = []
        for binding in reversed(self._bindings.all[: chain[-1].at]):
            if may_write(binding.value):
                break
            if (
                binding.at not in within
                and binding.fused == scatter.fused
                and binding.var in self._readers
                and binding.var not in taken
                and operator_of(binding.value) in ELEMENTWISE
                and static_shape(binding.var) is not None
                and not binding.reads & self._products
                and self._reads_all(binding.var, within)
            ):
                within.add(binding.at)
                found.append(binding)
        return tuple(reversed(found))


def _behind(scatter: Binding, bindings: Bindings, taken: Collection[Any]) -> Mapping[Any, Binding]:
    """The operators that are computed from a scatter place by place, by their results."""
    members, found = {scatter.var}, {}
    for binding in bindings.all[scatter.at + 1 :]:
        if may_write(binding.value):
            break
        if binding.fused != scatter.fused or binding.var in taken:
            continue
        if binding.reads & members and _keeps_places(binding, members):
            members.add(binding.var)
            found[binding.var] = binding
    return found


def _keeps_places(binding: Binding, members: Collection[Any]) -> bool:
    """Whether each element is computed from those of some tensors that lie at the same place."""
    name, shape = operator_of(binding.value), static_shape(binding.var)
    if shape is None:
        return False
    if name in RESHAPES:
        return True
    return name in ELEMENTWISE and all(
        same_shape(static_shape(operand), shape)
        for operand in operands_of(binding.value)
        if operand in members
    )


def _up_to(last: Binding, behind: Mapping[Any, Binding]) -> list[Binding]:
    """The operators that a result is computed by, in the order in which they run."""
    found, waiting = {last.at: last}, [last]
    while waiting:
        for var in waiting.pop().reads:
            source = behind.get(var)
            if source is not None and source.at not in found:
                found[source.at] = source
                waiting.append(source)
    return [found[at] for at in sorted(found)]


def _can_be_written(var: Any) -> bool:
    """Whether kernels write tensors of this type."""
    dtype = str(var.ty.dtype)
    return dtype in DATA_DTYPES and dtype != "bool" and bool(static_shape(var))
