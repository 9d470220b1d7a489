"""Run a model of the zoo with PyTorch, export it and import it with TVM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import tvm
from torch.utils import _pytree as pytree
from tvm.relax.frontend.torch import from_exported_program

import tvm_scatter

from .trial import Array, Prepared, Run
from .zoo import Entry, Program


def prepare(entry: Entry) -> Prepared:
    """Everything that is needed to compile and judge a model."""
    program = entry.program()
    with torch.no_grad():
        module = imported(program)
        changed = tvm_scatter.buffers(module)
        buffers = [tensor.numpy() for tensor in changed.values()]
        return Prepared(entry.name, module, buffers, list(_runs(program, list(changed))))


def imported(program: Program) -> tvm.IRModule:
    """The model as TVM's importer reads it with this package installed."""
    dynamic = program.dynamic
    if dynamic is not None:
        dynamic = (tuple(dynamic),) if program.is_function else tuple(dynamic)
    exported = torch.export.export(
        program.module, tuple(program.inputs), dynamic_shapes=dynamic, strict=False
    )
    return from_exported_program(exported)


def _runs(program: Program, changed: Sequence[str]) -> Iterator[Run]:
    """What PyTorch computes, each time with the buffers as they are at first."""
    buffers = dict(program.module.named_buffers())
    first = {name: value.clone() for name, value in buffers.items()}
    for inputs in filter(None, (program.inputs, program.again)):
        for name, value in buffers.items():
            value.copy_(first[name])
        results = pytree.tree_leaves(program.module(*(each.clone() for each in inputs)))
        tensors = [each for each in results if isinstance(each, torch.Tensor)]
        expected = [*tensors, *(buffers[name] for name in changed)]
        yield Run(_arrays(inputs), _arrays(expected))
    for name, value in buffers.items():
        value.copy_(first[name])


def _arrays(tensors: Sequence[Any]) -> list[Array]:
    """Copies as NumPy arrays; TVM knows the types that NumPy has no name for."""
    return [
        tvm.runtime.from_dlpack(tensor.detach().contiguous().clone()).numpy() for tensor in tensors
    ]
