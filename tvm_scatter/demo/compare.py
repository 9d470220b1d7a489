"""Exports, compiles and runs a model, and compares it with PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import tvm
from tvm import relax
from tvm.target import Target

from tvm_scatter.explain import explain, summary
from tvm_scatter.pipelines import pipeline
from tvm_scatter.runtime.suppress_stderr import quiet
from tvm_scatter.selection.backend import backend_of
from tvm_scatter.selection.targets import need_device
from tvm_scatter.tuning.measure.sampling import Budget, Summary
from tvm_scatter.tuning.measure.time_shares import time_shares
from tvm_scatter.tuning.measure.wall_time import to_result

from .model import DemoModel

_SEED = 0
_BUDGET = Budget(fewest=3, most=1000, seconds=0.5)


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison.

    Attributes
    ----------
    max_error : float
        The largest absolute difference from PyTorch in any output.
    right : bool
        Whether that is within the model's tolerance.
    ours, eager : float or None
        Seconds of one run, median, of the compiled model and of PyTorch on the same device;
        ``None`` where nothing was measured.
    implementations : dict of str to int
        How many scatters each implementation got.
    shares : dict of str to float, optional
        What part of the compiled model's time each kind of function takes, on a CPU.
    """

    max_error: float
    right: bool
    ours: float | None
    eager: float | None
    implementations: dict[str, int]
    shares: dict[str, float] | None


def make(model: DemoModel, size: str) -> tuple[Any, tuple[Any, ...]]:
    """The module and its inputs, the same ones each time."""
    torch.manual_seed(_SEED)
    return model.make(size)


def export(module: Any, inputs: tuple[Any, ...]) -> Any:
    """The module as PyTorch's ExportedProgram."""
    with quiet(), torch.no_grad():
        return torch.export.export(module, inputs)


def import_program(program: Any) -> tvm.IRModule:
    """The program as a Relax module, by TVM's importer."""
    from tvm.relax.frontend.torch import from_exported_program

    with quiet():
        return from_exported_program(program)


def compare(
    model: DemoModel,
    size: str,
    target: Target,
    measure: bool = True,
    step: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """Run a model both ways.

    Parameters
    ----------
    measure : bool
        Whether to take times.
    step : callable
        Called with a text for each step that begins.
    """
    step("exporting")
    module, inputs = make(model, size)
    program = export(module, inputs)
    step("compiling")
    return compare_imported(
        import_program(program), module, inputs, model.tolerance, target, measure, step
    )


def compare_imported(
    mod: tvm.IRModule,
    module: Any,
    inputs: tuple[Any, ...],
    tolerance: float,
    target: Target,
    measure: bool = True,
    step: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """:func:`compare` for a module that TVM has imported already, as ``mod``."""
    with quiet():
        implementations = summary(explain(mod, target))
        executable = tvm.compile(mod, target=target, relax_pipeline=pipeline(target))
    step("running")
    device = need_device(target)
    with torch.no_grad():
        expected = outputs(module(*inputs))
    run = runner(executable, device, inputs)
    found = [tensor.numpy() for tensor in outputs(run())]
    error, right = difference(found, [tensor.numpy() for tensor in expected], tolerance)
    ours = eager = shares = None
    if measure:
        ours = seconds(run, device.sync)
        eager = eager_seconds(module, inputs, device)
        if not backend_of(target).is_gpu:
            tensors = [tvm.runtime.tensor(tensor.numpy()) for tensor in inputs]
            shares = time_shares(executable, tensors)
    return Comparison(error, right, ours, eager, implementations, shares)


def runner(executable: Any, device: Any, inputs: tuple[Any, ...]) -> Callable[[], Any]:
    """The compiled model with its inputs on the device, ready to be called."""
    machine = relax.VirtualMachine(executable, device)
    tensors = [tvm.runtime.tensor(tensor.numpy(), device) for tensor in inputs]
    return lambda: machine["main"](*tensors)


def outputs(result: Any) -> list[Any]:
    """The tensors of a model's result."""
    single = isinstance(result, torch.Tensor | tvm.runtime.Tensor)
    return [result] if single else list(result)


def difference(
    found: list[np.ndarray], expected: list[np.ndarray], tolerance: float
) -> tuple[float, bool]:
    """The largest absolute difference, and whether it is small against the largest output."""
    if [array.shape for array in found] != [array.shape for array in expected]:
        return float("inf"), False
    pairs = list(zip(found, expected, strict=True))
    error = max((float(np.abs(a - b).max()) for a, b in pairs if a.size), default=0.0)
    scale = max((float(np.abs(b).max()) for _, b in pairs if b.size), default=1.0)
    return error, bool(error <= tolerance * max(scale, 1.0))


def seconds(run: Callable[[], Any], synchronize: Callable[[], None]) -> float:
    """The median time of one run, the device's work included."""
    return Summary.of(to_result(run, synchronize, _BUDGET, warm_up=1)).median


def eager_seconds(module: Any, inputs: tuple[Any, ...], device: Any) -> float | None:
    """The time of PyTorch on the same device; ``None`` if PyTorch cannot use it."""
    if device.dlpack_device_type() == tvm.cpu().dlpack_device_type():
        where, synchronize = "cpu", lambda: None
    elif torch.cuda.is_available():
        where, synchronize = "cuda", torch.cuda.synchronize
    else:
        return None
    there = module.to(where)
    moved = tuple(tensor.to(where) for tensor in inputs)
    with torch.no_grad():
        return seconds(lambda: there(*moved), synchronize)
