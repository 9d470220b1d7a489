"""What is computed by one kernel beside scatters and reads, and how products are.

The passes are those of the compilation, up to TVM's fusion.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.ir import IRModule
from tvm.target import Target

from tvm_scatter.lowering.fusion_patterns import ROOT, fusion_pattern
from tvm_scatter.ops.called import CALL_TIR, operator_of
from tvm_scatter.options import Options
from tvm_scatter.passes import last_passes
from tvm_scatter.passes.analysis.named_values import named_values
from tvm_scatter.passes.named_steps import with_named_steps
from tvm_scatter.passes.put_together import legalized_beside_scatters, put_together
from tvm_scatter.passes.report import Note, collected_notes
from tvm_scatter.selection.backend import backend_of

from .planned_product import form_of_product


def planned_kernels(mod: IRModule, options: Options) -> list[Note]:
    """What the passes say, and the forms of products, in the order of the program; on GPUs."""
    target = Target.current(allow_none=True)
    if not options.enabled or target is None or not backend_of(target).is_gpu:
        return []
    with collected_notes() as notes:
        last = tvm.transform.Sequential(last_passes(options, on_gpu=True, schedules=True))
        legalized = legalized_beside_scatters(last(mod))
        named = with_named_steps(legalized, mod)
        mod = put_together(named)
    forms = {name: form_of_product(mod[name], target) for name in _products(mod)}
    for where, call in named_values(mod):
        form = forms.get(call.args[0]) if operator_of(call) == CALL_TIR else None
        if form is not None:
            notes.append(Note("products", where, form))
    order = {where: at for at, (where, _) in enumerate(named_values(named))}
    return sorted(notes, key=lambda note: order.get(note.where, len(order)))


def _products(mod: IRModule) -> list[Any]:
    """The names of functions that TVM computes nothing in front of, such as products."""
    return [
        name
        for name, function in mod.functions.items()
        if isinstance(function, tirx.PrimFunc) and fusion_pattern(function) == ROOT
    ]
