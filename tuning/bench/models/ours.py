"""A case compiled by this package: with default options, and with all that is not yet default."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import tvm
from tvm import relax
from tvm.target import Target

import tvm_scatter
from tvm_scatter.runtime.suppress_stderr import quiet
from tvm_scatter.selection.targets import need_device

from .case import Case

_FUSED = {"fuse": True, "share_order": True, "fill": True, "row_sums": True}
#: The options of each form of ours.
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "fused": _FUSED,
    "deterministic": {**_FUSED, "deterministic": True},
}
_ALLOCATES = "vm.builtin.alloc_storage"


@dataclass(frozen=True)
class Compiled:
    """A compiled case.

    Attributes
    ----------
    executable : tvm.runtime.Executable
        What was compiled.
    device : tvm.runtime.Device
        Where it runs.
    """

    executable: Any
    device: Any

    def on(self, inputs: Sequence[torch.Tensor]) -> Callable[[], torch.Tensor]:
        """A call that computes the result from inputs on the device."""
        function = relax.VirtualMachine(self.executable, self.device)["main"]
        tensors = arguments(inputs)
        return lambda: _only(function(*tensors))

    def planned_bytes(self, inputs: Sequence[torch.Tensor]) -> int:
        """The memory that a run allocates for results and for what lies between."""
        machine = relax.VirtualMachine(self.executable, self.device)
        sizes = []

        def instrument(_function: Any, name: str, before: bool, _value: Any, *given: Any) -> int:
            if before and name == _ALLOCATES:
                sizes.append(int(given[1][0]))
            return 0

        machine.set_instrument(instrument)
        machine["main"](*arguments(inputs))
        return sum(sizes)


def arguments(inputs: Sequence[torch.Tensor]) -> list[Any]:
    """Tensors of PyTorch as TVM takes them, in the same memory."""
    return [tvm.runtime.from_dlpack(each.contiguous()) for each in inputs]


def imported(case: Case, *, dynamic: bool = False) -> tvm.IRModule:
    """The module of a case on the host as TVM's importer brings it in.

    Parameters
    ----------
    dynamic : bool, optional
        Whether the sizes that vary are known at run time only.
    """
    from tvm.relax.frontend.torch import from_exported_program

    axes = [dict.fromkeys(each, torch.export.Dim.AUTO) for each in case.varying]
    shapes = tuple(axes) if dynamic else None
    with quiet(), torch.no_grad():
        program = torch.export.export(case.module, case.inputs, dynamic_shapes=shapes)
        return from_exported_program(program)


def compiled(mod: tvm.IRModule, target: Target, form: str, **more: Any) -> Compiled:
    """An imported module, compiled with the options of a form and some more."""
    pipeline = tvm_scatter.pipeline(target, **OPTIONS[form], **more)
    with quiet():
        executable = tvm.compile(mod, target=target, relax_pipeline=pipeline)
    return Compiled(executable, need_device(target))


def _only(result: Any) -> torch.Tensor:
    """The tensor of a result; a tuple has one."""
    single = isinstance(result, tvm.runtime.Tensor)
    return torch.from_dlpack(result if single else result[0])
