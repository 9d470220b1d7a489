"""Buffers and inputs that a PyTorch module changes in ``forward``, as arguments and results.

TVM's importer takes a buffer for a constant and drops what is written to it or to an input. A Relax
function has no state; so where a scatter writes to a buffer, the function takes it and returns the
new one, and where it writes to an input, the function returns that as well.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import tvm

from tvm_scatter.ops.mutable_buffers import with_buffers

#: What PyTorch calls the outputs of a graph that nobody returned: new values of what it changes.
_BUFFER_MUTATION, _INPUT_MUTATION = "BUFFER_MUTATION", "USER_INPUT_MUTATION"


def explicit_buffers(program: Any, writes: Callable[[Any], bool]) -> tuple[Any, dict[str, Any]]:
    """Make the changed buffers of an exported program the last inputs and outputs of its user.

    In front of them come the changed inputs, unless they are outputs already.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        It is not changed.
    writes : callable
        Whether a node of the graph is a scatter. Programs whose buffers and inputs are changed by
        other operators only are left to TVM.

    Returns
    -------
    program : torch.export.ExportedProgram
        The changed program, or the same one.
    buffers : dict of str to torch.Tensor
        The values of the buffers by their names.
    """
    signature = program.graph_signature
    mutated = [spec.arg.name for spec in signature.output_specs if _is_mutation(spec)]
    nodes = {node.name: node for node in program.graph.nodes}
    if not any(_is_written(nodes[name], writes) for name in mutated if name in nodes):
        return program, {}
    changed = set(signature.buffers_to_mutate.values())
    names = [name for name in signature.buffers if name in changed]
    values = {**program.constants, **dict(program.named_buffers())}
    explicit = copy.copy(program)
    explicit._graph_signature = _signature(signature, names)
    explicit._constants = {
        name: value for name, value in program.constants.items() if name not in names
    }
    explicit._graph_module = _reordered(program)
    return explicit, {name: values[name] for name in names}


def remember_buffers(mod: tvm.IRModule, buffers: dict[str, Any]) -> tvm.IRModule:
    """Keep the values of the buffers with the imported module."""
    if buffers:
        values = {
            name: tvm.runtime.tensor(value.detach().cpu().numpy())
            for name, value in buffers.items()
        }
        mod["main"] = with_buffers(mod["main"], values)
    return mod


def _is_written(node: Any, writes: Callable[[Any], bool]) -> bool:
    """Whether a scatter stands between a buffer and its new value."""
    while node.op == "call_function":
        if writes(node):
            return True
        # What else changes a buffer hands its data on as its first argument, as a scatter does.
        first = node.args[0] if node.args else None
        if not hasattr(first, "op"):
            return False
        node = first
    return False


def _signature(signature: Any, names: list[str]) -> Any:
    """The signature with the buffers behind the inputs, and their new values behind the outputs."""
    from torch.export.graph_signature import (
        ExportGraphSignature,
        InputKind,
        InputSpec,
        OutputKind,
        OutputSpec,
    )

    inputs = [spec for spec in signature.input_specs if spec.target not in names]
    by_name = {spec.target: spec for spec in signature.input_specs}
    inputs += [InputSpec(InputKind.USER_INPUT, by_name[name].arg, None) for name in names]
    specs = signature.output_specs
    outputs = [
        OutputSpec(OutputKind.USER_OUTPUT, specs[at].arg, None)
        if _is_mutation(specs[at])
        else specs[at]
        for at in _outputs(signature)
    ]
    return ExportGraphSignature(inputs, outputs)


def _outputs(signature: Any) -> list[int]:
    """The places of the outputs in the graph, in the order in which the user gets them."""
    specs = signature.output_specs
    own = [at for at, spec in enumerate(specs) if not _is_mutation(spec)]
    returned = {getattr(specs[at].arg, "name", None) for at in own}
    changed = {
        specs[at].target: at
        for at in range(len(specs))
        if _is_mutation(specs[at])
        and not (specs[at].kind.name == _INPUT_MUTATION and specs[at].arg.name in returned)
    }
    order = [*signature.user_inputs, *signature.buffers]
    return own + [changed[name] for name in order if name in changed]


def _reordered(program: Any) -> Any:
    """The graph with its outputs in the order of the new signature."""
    import torch

    graph = torch.fx.Graph()
    results = graph.graph_copy(program.graph, {})
    graph.output(tuple(results[at] for at in _outputs(program.graph_signature)))
    return torch.fx.GraphModule(program.graph_module, graph)


def _is_mutation(spec: Any) -> bool:
    return spec.kind.name in (_BUFFER_MUTATION, _INPUT_MUTATION)
