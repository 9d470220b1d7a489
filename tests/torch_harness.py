"""Run a PyTorch function through TVM's importer and compare the result with PyTorch itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import tvm
from harness import device_of, target_of
from torch.utils._pytree import tree_leaves
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

import tvm_scatter  # noqa: F401

#: Relative and absolute tolerance: sums are rounded in another order than PyTorch's.
TOLERANCE = {
    torch.float16: (2e-2, 2e-2),
    torch.bfloat16: (8e-2, 8e-2),
    torch.float32: (1e-5, 1e-5),
    torch.float64: (1e-10, 1e-10),
}


class _Model(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def export(
    function: Callable[..., Any], inputs: Sequence[torch.Tensor], dynamic: Any = None
) -> torch.export.ExportedProgram:
    """Export a function of tensors."""
    shapes = None if dynamic is None else (tuple(dynamic),)
    return torch.export.export(_Model(function), tuple(inputs), dynamic_shapes=shapes)


def compile_for(module: tvm.IRModule, device: str = "llvm") -> relax.VirtualMachine:
    """Compile as a user does, for ``llvm`` or ``cuda``."""
    return relax.VirtualMachine(tvm.compile(module, target_of(device)), device_of(device))


def run(
    machine: relax.VirtualMachine, inputs: Sequence[torch.Tensor], device: str = "llvm"
) -> list[torch.Tensor]:
    """Call ``main``; the results as PyTorch tensors of their own."""
    on, cpu = device_of(device), tvm.cpu()
    results = machine["main"](*(to_tvm(tensor).copyto(on) for tensor in inputs))
    if not isinstance(results, Sequence) and not hasattr(results, "__len__"):
        results = [results]
    if isinstance(results, tvm.runtime.Tensor):
        results = [results]
    return [torch.from_dlpack(result.copyto(cpu)).clone() for result in results]


def to_tvm(tensor: torch.Tensor) -> Any:
    """A copy of a tensor for TVM."""
    return tvm.runtime.from_dlpack(tensor.detach().clone().contiguous())


def through_tvm(
    function: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    dynamic: Any = None,
    device: str = "llvm",
    **importing: Any,
) -> list[torch.Tensor]:
    """Export, import, compile and run."""
    program = export(function, inputs, dynamic)
    module = from_exported_program(program, **importing)
    return run(compile_for(module, device), inputs, device)


def assert_same(actual: torch.Tensor, expected: torch.Tensor, what: str = "") -> None:
    """Compare shape, type and values; floats to within the tolerance of their type."""
    assert actual.dtype == expected.dtype, f"{what}: {actual.dtype} is not {expected.dtype}"
    assert actual.shape == expected.shape, f"{what}: {actual.shape} is not {expected.shape}"
    rtol, atol = TOLERANCE.get(expected.dtype, (0.0, 0.0))
    wide = torch.float64 if expected.is_floating_point() else torch.int64
    a, e = (tensor.detach().to(wide).numpy() for tensor in (actual, expected))
    np.testing.assert_allclose(a, e, rtol=rtol, atol=atol, err_msg=what)


def check(
    function: Callable[..., Any],
    *inputs: torch.Tensor,
    dynamic: Any = None,
    device: str = "llvm",
    **importing: Any,
) -> None:
    """Compare what TVM computes with what PyTorch computes."""
    expected = tree_leaves(function(*(tensor.clone() for tensor in inputs)))
    actual = through_tvm(function, inputs, dynamic, device, **importing)
    assert len(actual) == len(expected)
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        assert_same(a, e, f"result {i}")


Case = tuple[str, Callable[..., Any], Sequence[torch.Tensor]]


def check_all(cases: Sequence[Case], **importing: Any) -> None:
    """Check many cases in one model; if that fails, name the ones that fail by themselves."""
    counts = [len(inputs) for _, _, inputs in cases]

    def every(*tensors: torch.Tensor) -> tuple[Any, ...]:
        results, at = [], 0
        for (_, function, _), count in zip(cases, counts, strict=True):
            results.append(function(*tensors[at : at + count]))
            at += count
        return tuple(results)

    try:
        check(every, *(tensor for _, _, inputs in cases for tensor in inputs), **importing)
    except Exception as together:
        failures = [failure for case in cases if (failure := _failure(case, importing))]
        raise AssertionError("\n".join(failures) or f"only together: {together}") from together


def _failure(case: Case, importing: dict[str, Any]) -> str:
    name, function, inputs = case
    try:
        check(function, *inputs, **importing)
    except Exception as error:
        shapes = [f"{tensor.dtype} {tuple(tensor.shape)}" for tensor in inputs]
        return f"{name} on {shapes}: {type(error).__name__}: {str(error).strip()[-500:]}"
    return ""
