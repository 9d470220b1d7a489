"""Attention as programs have it that were decomposed on a GPU: one operator for each kernel."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from tvm_scatter.errors import ScatterError

from .attention import attention
from .graphs import graphs_of, name_of, original_name

#: The kernels, by name. Results behind the first one are for gradients.
FUSED_ATTENTION = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
)


def attention_decompositions() -> dict[Any, Callable[..., Any]]:
    """By operator, functions in PyTorch's own operators."""
    import torch

    aten = torch.ops.aten
    # Older versions of PyTorch have fewer.
    operators = [getattr(aten, name).default for name in FUSED_ATTENTION if hasattr(aten, name)]
    return {operator: _decomposed(operator) for operator in operators}


def refuse_results_for_gradients(program: Any, known: Container[str]) -> None:
    """Check that of such attention only the first result is read.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The program.
    known : container of str
        The names of the overloads that have a converter, which are not checked.

    Raises
    ------
    ScatterError
        If another result is read.
    """
    names = {f"{name}.default" for name in FUSED_ATTENTION}
    for graph in graphs_of(program):
        for node in graph.nodes:
            if name_of(node) != "getitem" or not node.users:
                continue
            attention, which = node.args
            if which and name_of(attention) in names and name_of(attention) not in known:
                result = attention.target._schema.returns[which].name
                raise ScatterError(
                    f"{original_name(attention)}: {result} is not imported, only the output is; "
                    "write attention with torch.softmax if the model reads more or is trained."
                )


def _decomposed(operator: Any) -> Callable[..., Any]:
    schema = operator._schema

    def decomposed(*arguments: Any, **named: Any) -> tuple[Any, ...]:
        defaults = {each.name: each.default_value for each in schema.arguments}
        given = dict(zip(defaults, arguments, strict=False))
        call = {**defaults, **given, **named}
        query = call["query"]
        output = attention(
            *(query, call["key"], call["value"]),
            bias=call.get("attn_bias"),
            **{name: call[name] for name in ("dropout_p", "is_causal", "scale")},
        )
        others = (
            query.new_empty(0) if str(each.type) == "Tensor" else 0 for each in schema.returns[1:]
        )
        return output, *others

    return decomposed
