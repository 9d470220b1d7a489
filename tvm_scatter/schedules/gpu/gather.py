"""The schedule of functions that read by index, or compute rows from rows, as TVM has fused them.

TVM's own schedule gives each thread one element. So few bytes are on their way at a time that the
memory waits for the threads.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import s_tir, tirx
from tvm.s_tir.dlight.base import ScheduleRule
from tvm.target import Target

from tvm_scatter.options import current_options
from tvm_scatter.schedules.empty_launches import with_body
from tvm_scatter.selection.backend import backend_of

from .gather_form import Gathering, dividing, form_of, gathering
from .gather_kernel import Kernel


class Gather(ScheduleRule):
    """Accesses of 16 bytes where rows allow it, and several on their way in each thread."""

    def apply(self, func: tirx.PrimFunc, target: Target, _tunable: bool) -> s_tir.Schedule | None:
        """The scheduled function, or ``None`` if it is none of these."""
        return _scheduled(func, target, gathering)


class Divisions(ScheduleRule):
    """Several elements in a thread, where positions are divided, and in 32 bits if these suffice.

    TVM divides by sizes of the run time in 64 bits: 338 us for a concatenation of 67 MB on an H200,
    where a copy takes 36. This comes behind the rules that need no division.
    """

    def apply(self, func: tirx.PrimFunc, target: Target, _tunable: bool) -> s_tir.Schedule | None:
        """The scheduled function, or ``None`` if it divides nothing, or reduces."""
        return _scheduled(func, target, dividing)


def _scheduled(
    function: tirx.PrimFunc,
    target: Target,
    find: Callable[[tirx.PrimFunc], Gathering | None],
) -> s_tir.Schedule | None:
    if not (backend_of(target).schedules_reads and current_options().gather):
        return None
    found = find(function)
    form = None if found is None else form_of(found)
    if found is None or form is None:
        return None
    body = with_body(found.function.body, Kernel(found, form).body())
    return s_tir.Schedule(found.function.with_body(body))
