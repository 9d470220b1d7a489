"""Calls of new functions on the host that check what a shape heap holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tvm import relax, tirx
from tvm.relax.expr import _update_type
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_scatter.emit.error_text import raise_error
from tvm_scatter.emit.parameters import PRIM_FUNC_ATTRS, opaque_block

from .analysis.shape_heap import ShapeHeap


class Rule(NamedTuple):
    """What must not hold of the sizes in a heap, and what is said if it does.

    Attributes
    ----------
    is_wrong : function of the heap
        The condition that must not hold.
    said : function of the heap
        The parts of the message, texts and sizes.
    """

    is_wrong: Callable[[Any], Any]
    said: Callable[[Any], Sequence[Any]]


def rule_of_size(place: int, is_wrong: Callable[[Any], Any], said: str) -> Rule:
    """A rule of the size at one place of the heap: what must not hold of it, and what is said."""
    return Rule(
        lambda held: is_wrong(held[place]),
        lambda held: [said, held[place], "."],
    )


def heap_check(
    builder: relax.BlockBuilder, heap: ShapeHeap, rules: Iterable[Rule]
) -> relax.VarBinding:
    """A binding that calls a new function, which raises an error if the heap breaks a rule."""
    with IRBuilder() as ir:
        with T.prim_func(s_tir=True):
            T.func_attr({**PRIM_FUNC_ATTRS, "tirx.is_host_func": True})
            held = T.match_buffer(T.arg("heap", T.handle()), (heap.room,), "int64")
            with opaque_block():
                for rule in rules:
                    with T.If(rule.is_wrong(held)), T.Then():
                        raise_error("ValueError", rule.said(held))
    function: tirx.PrimFunc = ir.get()
    name = builder.add_func(function, "check_sizes")
    # TVM has given the others their symbols before.
    builder.update_func(name, function.with_attr("global_symbol", name.name_hint))
    call = builder.normalize(relax.Call(name, [heap.variable]))
    return relax.VarBinding(relax.Var("_", call.ty), call)


def with_bindings(
    function: relax.Function,
    before: Mapping[Any, Any] | None = None,
    after: Mapping[Any, Any] | None = None,
) -> relax.Function:
    """A function with a binding in front of, or behind, each of some bindings.

    Parameters
    ----------
    before, after : dict of relax.Var to relax.Binding
        The new bindings, by the variables of those that they stand beside.
    """

    def placed(bindings: Iterable[Any]) -> Iterator[Any]:
        for binding in bindings:
            if before and binding.var in before:
                yield before[binding.var]
            yield binding
            if after and binding.var in after:
                yield after[binding.var]

    blocks = [relax.BindingBlock(list(placed(block.bindings))) for block in function.body.blocks]
    body = relax.SeqExpr(blocks, function.body.body)
    _update_type(body, function.body.ty)
    return relax.Function(
        function.params, body, function.ret_ty, function.is_pure, function.attrs, function.span
    )
