"""The order of updates by destination on the GPU, in the first form that takes the sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_scatter.emit.operands import Operands
from tvm_scatter.emit.ordering import Ordering
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.sizes import Sizes

from .steps import order_by_buckets, order_by_radix, order_in_block
from .steps.order_forms import OrderForm

_FORMS = (order_in_block.FORM, order_by_buckets.FORM, order_by_radix.FORM)
#: The name of the form from which on forms are considered.
_first: ContextVar[str] = ContextVar("first order form", default=_FORMS[0].name)


@contextmanager
def forms_from(name: str) -> Iterator[None]:
    """Leave out the forms before ``block``, ``buckets`` or ``radix``, to compare them."""
    token = _first.set(name)
    try:
        yield
    finally:
        _first.reset(token)


def _possible(problem: ScatterProblem, sizes: Sizes, target: Any) -> list[tuple[Any, OrderForm]]:
    """The forms that may take the sizes, and whether they do; the last one does."""
    at = [each.name for each in _FORMS].index(_first.get())
    found = []
    for form in _FORMS[at:]:
        takes = form.takes(problem, sizes, target)
        if takes is not False:
            found.append((takes, form))
        if takes is True:
            break
    return found


def _workspace(problem: ScatterProblem, sizes: Sizes, target: Any) -> Any:
    size: Any = 0
    for _, form in _possible(problem, sizes, target):
        needed = form.workspace(problem, sizes)
        if isinstance(size, int) and isinstance(needed, int):
            size = max(size, needed)
        else:
            size = tirx.max(size, needed)
    return size


def _emit(operands: Operands, offsets: Any) -> None:
    _emit_first(_possible(operands.problem, operands.sizes, operands.target), operands, offsets)


def _emit_first(forms: Sequence[tuple[Any, OrderForm]], operands: Operands, offsets: Any) -> None:
    """Emit the first form that takes the sizes."""
    takes, form = forms[0]
    if takes is True:
        form.emit(operands, offsets)
        return
    with T.If(takes):
        with T.Then():
            form.emit(operands, offsets)
        with T.Else():
            _emit_first(forms[1:], operands, offsets)


#: On an H200, 300 000 to 5 million updates of 100 000 places took 25 to 131 us, and a radix sort 55
#: to 262; where destinations are skewed, 0.7 of it.
ORDERING = Ordering(_workspace, _emit, cost=0.5)
