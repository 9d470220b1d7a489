"""Computes running sums and products, sorts, and the smallest elements, as the target does it best.

TVM dispatches these operators before it legalizes, so they are lowered in front of that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Op

from tvm_scatter.lowering.legalize_scan import KINDS, form_of_scan, legalize_scan
from tvm_scatter.lowering.legalize_smallest import TOPK, form_of_topk, legalize_smallest
from tvm_scatter.lowering.legalize_sort import ARGSORT, form_of_argsort, legalize_argsort
from tvm_scatter.lowering.lines import LeftToTVM
from tvm_scatter.ops.called import operator_of
from tvm_scatter.options import current_options

from .report import Note

_LEGALIZE = {
    **dict.fromkeys(KINDS, legalize_scan),
    TOPK: legalize_smallest,
    ARGSORT: legalize_argsort,
}
#: What each computes, and what says in which form.
_FORMS: dict[str, tuple[str, Callable[[relax.Call], str | None]]] = {
    **dict.fromkeys(KINDS, ("scan", form_of_scan)),
    TOPK: ("topk", form_of_topk),
    ARGSORT: ("sort", form_of_argsort),
}


#: The operators that the pass lowers.
OPERATORS_OF_LINES = tuple(_LEGALIZE)


def OwnLines() -> tvm.transform.Pass:
    """The pass. It changes nothing where the options switch this package off."""

    def lower(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        if not current_options().enabled:
            return mod
        others = _others(len(Op.list_op_names()))
        return relax.transform.LegalizeOps(_LEGALIZE, others)(mod)

    return tvm.transform.module_pass(lower, opt_level=0, name="OwnLines")


def note_of_lines(where: str, call: Any) -> Note | None:
    """What the pass does with a call; ``None`` if that is nothing, as of other operators."""
    name = operator_of(call)
    if name not in _FORMS or not current_options().enabled:
        return None
    what, form_of = _FORMS[name]
    try:
        form = form_of(call)
    except LeftToTVM as refusal:
        form = f"by TVM, because {refusal}"
    operator = name.removeprefix("relax.")
    return None if form is None else Note(what, where, f"= {operator}, {form}")


@cache
def _others(_registered: int) -> Any:
    """The operators that are left alone: a thousand names, made anew where there are more."""
    return tvm.runtime.convert([name for name in Op.list_op_names() if name not in _LEGALIZE])
