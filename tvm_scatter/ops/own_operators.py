"""How TVM knows operators of this package: registered by name, called with attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Op


def register_operator(name: str, infer: Callable[[relax.Call, Any], Any], **others: Any) -> None:
    """Register an operator without side effects. Calling it again changes nothing.

    Parameters
    ----------
    name : str
        Its name in TVM's registry, such as ``"relax.tvm_scatter.index"``.
    infer : callable
        From a call and its context to the type of its result.
    **others
        Further attributes that TVM asks for.
    """
    if name in Op.list_op_names():
        return
    for attribute, value in {"FPurity": True, "FInferType": infer, **others}.items():
        tvm.ir.register_op_attr(name, attribute, value)


def call_of(
    name: str, operands: Sequence[Any], attrs: Mapping[str, Any] | None = None
) -> relax.Call:
    """A call of a registered operator.

    Parameters
    ----------
    name : str
        Its name in TVM's registry.
    operands : sequence of relax.Expr
        Its operands.
    attrs : mapping, optional
        From names to numbers, text, types, shapes or lists of them.

    Returns
    -------
    call : relax.Call
        Without a type, until a block builder emits it.
    """
    made = tvm.ir.make_node("ir.DictAttrs", **attrs) if attrs else None
    return relax.Call(Op.get(name), list(operands), attrs=made)
