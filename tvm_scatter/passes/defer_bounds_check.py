"""Under ``raise``, moves the host's waits for bounds checks to the end of a function.

Otherwise the host waits at each operator. Until the end, a scatter skips bad indices and a read
takes zeros for them. So the function may write nothing that its caller sees, and may call nothing
whose effects are unknown. The pass legalizes scatters and reads before LegalizeOps, because
legalizing decides where the host waits. A scatter that signals drops itself keeps its wait: to
report the bad index, its index tensors would have to be kept until the end.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.ir import Op
from tvm.relax.binding_rewrite import DataflowBlockRewrite
from tvm.target import Target

from tvm_scatter.bounds.device_check import CAN_WAIT
from tvm_scatter.lowering.reads import STOCK_OPERATORS as STOCK_READS
from tvm_scatter.lowering.reads import is_read
from tvm_scatter.ops.expectations import NAMES as EXPECTATIONS
from tvm_scatter.ops.names import NAMES, STOCK_OPERATORS
from tvm_scatter.ops.read_ops import NAMES as READ_NAMES
from tvm_scatter.ops.scatter_call import ScatterCall, is_scatter
from tvm_scatter.options import current_options
from tvm_scatter.passes.analysis.effects import may_write
from tvm_scatter.passes.analysis.sharing import shared_operands
from tvm_scatter.selection.strategy import strategy_for

from .functions import is_ours_to_change, with_changes

_CHECKED = (*STOCK_OPERATORS, *NAMES, *STOCK_READS, *READ_NAMES, *EXPECTATIONS)


def DeferBoundsCheck() -> tvm.transform.Pass:
    """The pass. It changes nothing unless the target checks indices on a device under ``raise``."""

    def together(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        if not _raises_on_device():
            return mod
        suitable = {
            name.name_hint
            for name, function in mod.functions.items()
            if is_ours_to_change(function) and _can_wait(function)
        }
        if not suitable:
            return mod
        legal = _with_legal_accesses(mod)
        return with_changes(
            legal,
            lambda name, function: (
                _waiting_once(legal, function) if name.name_hint in suitable else None
            ),
        )

    return tvm.transform.module_pass(together, opt_level=0, name="DeferBoundsCheck")


def _raises_on_device() -> bool:
    target, options = Target.current(allow_none=True), current_options()
    if target is None or not options.enabled:
        return False
    strategy = strategy_for(target.kind.name)
    if strategy is None or strategy.device_check is None:
        return False
    return strategy.backend.bounds_under(options) == "raise"


def _with_legal_accesses(mod: tvm.IRModule) -> tvm.IRModule:
    others = [name for name in Op.list_op_names() if name not in _CHECKED]
    return relax.transform.LegalizeOps(skip_ops=others)(mod)


def _can_wait(function: relax.Function) -> bool:
    """Whether an error at the end of a checked function leaves no visible effects."""
    blocks = function.body.blocks
    if len(blocks) != 1 or not isinstance(blocks[0], relax.DataflowBlock):
        return False
    values = [binding.value for binding in blocks[0].bindings]
    checked = any(is_scatter(value) or is_read(value) for value in values)
    return checked and not any(map(_has_effects, values))


def _has_effects(value: Any) -> bool:
    if is_scatter(value):
        call = ScatterCall.from_call(value)
        return call.in_place and not call.temporary
    # External functions may be declared pure although they write to their arguments.
    unknown = isinstance(value, relax.Call) and shared_operands(value, value) is None
    return unknown or may_write(value)


def _waiting_once(mod: tvm.IRModule, function: relax.Function) -> relax.Function | None:
    """The function with its waits moved to the end; ``None`` if no wait can be moved."""
    (block,), result = function.body.blocks, function.body.body
    waits = [binding for binding in block.bindings if _is_wait(mod, binding.value)]
    if not waits:
        return None
    rewrite = DataflowBlockRewrite(block, function)
    for binding in waits:
        rewrite.replace_all_uses(binding.var, binding.value.args[1][0])
        rewrite.remove_unused(binding.var)
    bindings = list(rewrite.mutated_dfb().bindings)
    returned = bindings.pop()
    if not result.same_as(returned.var):
        return None
    value = returned.value
    fields = list(value.fields) if isinstance(value, relax.Tuple) else [value]
    first = fields[0]
    if not isinstance(first.ty, relax.TensorType):
        return None
    builder = relax.BlockBuilder(mod)
    if not isinstance(first, relax.Var):
        first = _bind(bindings, first)
    for wait in waits:
        func, (_, memory) = wait.value.args[0], wait.value.args[1].fields
        call = relax.op.call_tir_inplace(func, [first, memory], 0, first.ty)
        first = _bind(bindings, builder.normalize(call))
    fields[0] = first
    value = relax.Tuple(fields) if isinstance(value, relax.Tuple) else first
    bindings.append(relax.VarBinding(result, builder.normalize(value)))
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], result)
    return relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)


def _bind(bindings: list[Any], value: relax.Expr) -> relax.Var:
    """Append a binding of the value to a new variable."""
    var = relax.DataflowVar("waited", value.ty)
    bindings.append(relax.VarBinding(var, value))
    return var


def _is_wait(mod: tvm.IRModule, value: Any) -> bool:
    if not isinstance(value, relax.Call) or not value.args:
        return False
    if not isinstance(value.args[0], tvm.ir.GlobalVar):
        return False
    attrs = mod[value.args[0]].attrs
    return attrs is not None and CAN_WAIT in attrs
