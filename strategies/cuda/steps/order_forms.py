"""Describes the ways to order updates by destination, each of which takes some sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tvm_scatter.emit.operands import Operands
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes
from tvm_scatter.selection.work import Work


@dataclass(frozen=True)
class OrderForm:
    """A way to order updates.

    Attributes
    ----------
    name : str
        Its name in experiments.
    takes : callable
        Whether it takes a problem and its sizes on a target: a truth value, or an expression where
        only run time tells.
    workspace : callable
        Bytes of scratch memory for a problem and its sizes on a target.
    emit : callable
        Emits the launches, given operands and where their order goes.
    time : callable
        The launches that some work of static sizes takes, and the microseconds beside them;
        ``None`` if the form does not take the sizes on its machine.
    carries : bool
        Whether it can move what lists carry of each update.
    """

    name: str
    takes: Callable[[ScatterProblem, Sizes, Any], Any]
    workspace: Callable[[ScatterProblem, Sizes, Any], Any]
    emit: Callable[[Operands, OrderedLists], None]
    time: Callable[[Work], tuple[Any, Any] | None]
    carries: bool = False


@dataclass(frozen=True)
class OrderedLists:
    """Where the lists of an order go.

    Attributes
    ----------
    permutation, offsets : str
        C++ expressions of type ``int*``.
    declarations : str
        C++ statements in front of them.
    arguments : mapping of name to (C++ type, expression)
        The parameters of the kernels that these use.
    carried : tuple of str or None
        Where what lists carry of each update shall be moved, if anywhere: room for as many in some
        other order, and the place where they stand in order. C++ expressions of type
        ``P::Updates::Carried*``.
    """

    permutation: str
    offsets: str
    declarations: str
    arguments: Mapping[str, tuple[str, Any]]
    carried: tuple[str, str] | None = None


def all_of(*conditions: Any) -> Any:
    """Whether all conditions hold, which are truth values or expressions."""
    if any(each is False for each in conditions):
        return False
    open_ = [each for each in conditions if each is not True]
    return tirx.all(*open_) if open_ else True
