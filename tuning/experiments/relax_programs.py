"""What experiments with programs of Relax beside PyTorch's forms have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
from tvm import relax, tirx

import tvm_scatter
from tvm_scatter.runtime.suppress_stderr import quiet
from tvm_scatter.tuning.measure import call_times
from tvm_scatter.tuning.measure.sampling import Budget

#: The shapes and types of tensors. A size that has a name is known at run time only.
Shapes = Sequence[tuple[Sequence[int | str], str]]
#: The tensors of a program, and what emits it, given a builder's ``emit`` and the tensors.
Source = tuple[Shapes, Callable[..., Any]]

BUDGET = Budget(fewest=3, most=15, seconds=0.05, patience=0.25)


def function_name(name: str) -> str:
    """The name of a program's function."""
    return "".join(part for part in name if part.isalnum())


def module(programs: Mapping[str, Source]) -> tvm.IRModule:
    """All programs, a function each."""
    builder = relax.BlockBuilder()
    for name, (shapes, build) in programs.items():
        sizes: dict[str, Any] = {}

        def size(each: int | str, sizes: dict[str, Any] = sizes) -> Any:
            if isinstance(each, int):
                return each
            return sizes.setdefault(each, tirx.Var(each, "int64"))

        parameters = [
            relax.Var(f"p{at}", relax.TensorType([size(each) for each in shape], dtype))
            for at, (shape, dtype) in enumerate(shapes)
        ]
        with builder.function(function_name(name), parameters):
            with builder.dataflow():
                output = builder.emit_output(build(builder.emit, *parameters))
            builder.emit_func_output(output)
    return builder.get()


def compiled(mod: tvm.IRModule, target: Any, **options: Any) -> Any:
    """A module compiled at once for this GPU."""
    pipeline = tvm_scatter.pipeline(target, **options)
    with quiet():
        executable = tvm.compile(mod, target=target, relax_pipeline=pipeline)
    return relax.VirtualMachine(executable, tvm.cuda(0))


def peers_of(torch_form: Callable[..., Any], with_compile: bool) -> dict[str, Callable[..., Any]]:
    """PyTorch's forms of a program, given one of them."""
    import torch

    forms = {"torch": torch_form}
    if with_compile:
        torch._dynamo.reset()
        forms["torch.compile"] = torch.compile(torch_form, dynamic=False)
    return forms


def copy_time(moved: int) -> float:
    """Microseconds of a copy that moves so many bytes."""
    import torch

    source, result = (torch.zeros(moved // 2, dtype=torch.uint8, device="cuda") for _ in range(2))
    source.random_()
    return float(call_times.on_gpu(lambda: result.copy_(source), BUDGET).device)


def markdown(figures: Mapping[str, Any], setting: str, indices: str) -> str:
    """The figures as a table.

    Parameters
    ----------
    setting : str
        What is measured.
    indices : str
        What the indices are called.
    """
    machine = ", ".join(f"{name} {value}" for name, value in figures["machine"].items())
    forms = [form for form in figures["rows"][0] if form not in ("program", "indices")]
    lines = [
        f"Measured on: {machine}.",
        "",
        f"{setting}; microseconds on the device.",
        "",
        f"| program | {indices} | {' | '.join(forms)} | copy / ours |",
        f"|---|---|{'--:|' * (len(forms) + 1)}",
    ]
    for row in figures["rows"]:
        numbers = " | ".join(f"{row[form]:,.1f}" for form in forms)
        ratio = f"{row['copy'] / row['ours']:.2f}"
        lines.append(f"| {row['program']} | {row['indices']} | {numbers} | {ratio} |")
    return "\n".join(lines)
