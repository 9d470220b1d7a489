"""Turns buffers and inputs that a PyTorch module writes to into arguments and results.

TVM's importer makes buffers constants, and drops writes to buffers and inputs. A Relax function has
no state. So a buffer that a scatter writes to becomes an argument, and its new value a result. Of
an input that a scatter writes to, the new value becomes a result, too. So do those whose new value
is computed from a scatter, such as a moving average.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import tvm

from tvm_scatter.ops.mutable_buffers import with_buffers

from .graphs import with_graph

#: PyTorch's kinds of outputs that the user did not return: new values of buffers and inputs.
_BUFFER_MUTATION, _INPUT_MUTATION = "BUFFER_MUTATION", "USER_INPUT_MUTATION"

_LOST = (
    "What the model writes to %s is lost, as in TVM without this package: only what a scatter "
    "computes is a result. Return it from forward to have it."
)
_logger = logging.getLogger("tvm_scatter")


def explicit_buffers(program: Any, writes: Callable[[Any], bool]) -> tuple[Any, dict[str, Any]]:
    """Make the changed buffers of an exported program its last user inputs and outputs.

    The new values of changed inputs come in front of those of the buffers, unless they are outputs
    already.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        The program, which is not modified.
    writes : callable
        Whether a node of the graph is a scatter. Programs whose buffers and inputs are changed by
        other operators only are left to TVM.

    Returns
    -------
    program : torch.export.ExportedProgram
        The new program, or the same one if nothing changes.
    buffers : dict of str to torch.Tensor
        The values of the buffers by their names.
    """
    signature = program.graph_signature
    mutated = [spec.arg.name for spec in signature.output_specs if _is_mutation(spec)]
    nodes = {node.name: node for node in program.graph.nodes}
    if not any(_is_written(nodes[name], writes) for name in mutated if name in nodes):
        lost = list(_lost(signature))
        if lost:
            _logger.warning(_LOST, ", ".join(lost))
        return program, {}
    changed = set(signature.buffers_to_mutate.values())
    names = [name for name in signature.buffers if name in changed]
    values = {**program.constants, **dict(program.named_buffers())}
    explicit = with_graph(program, _reordered(program))
    explicit._graph_signature = _signature(signature, names)
    explicit._constants = {
        name: value for name, value in program.constants.items() if name not in names
    }
    return explicit, {name: values[name] for name in names}


def remember_buffers(mod: tvm.IRModule, buffers: dict[str, Any]) -> tvm.IRModule:
    """Store the initial values of the buffers in the imported module."""
    if buffers:
        # NumPy has no bfloat16.
        values = {
            name: tvm.runtime.from_dlpack(value.detach().cpu().contiguous().clone())
            for name, value in buffers.items()
        }
        mod["main"] = with_buffers(mod["main"], values)
    return mod


def _lost(signature: Any) -> Iterator[str]:
    """The names of what is written to, but for inputs whose new values are outputs."""
    for spec in filter(_is_mutation, signature.output_specs):
        if spec.kind.name == _BUFFER_MUTATION or spec.arg.name not in signature.user_outputs:
            yield str(spec.target)


def _is_written(node: Any, writes: Callable[[Any], bool]) -> bool:
    """Whether the new value of a buffer is computed by a scatter, or from the result of one."""
    seen, waiting = {node}, [node]
    while waiting:
        node = waiting.pop()
        if writes(node):
            return True
        new = [each for each in node.all_input_nodes if each not in seen]
        seen.update(new)
        waiting += new
    return False


def _signature(signature: Any, names: list[str]) -> Any:
    """The signature with the buffers after the inputs, and their new values after the outputs."""
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
    """The positions of the outputs in the graph, in the order of the user's outputs."""
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
    return graph


def _is_mutation(spec: Any) -> bool:
    return spec.kind.name in (_BUFFER_MUTATION, _INPUT_MUTATION)
