"""What is reduced may be nothing at run time: a selection without a true entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tvm  # noqa: E402
from cuda_on_cpu import real_gpu  # noqa: E402
from harness import target_of  # noqa: E402
from torch_harness import compile_for, export, run  # noqa: E402
from tvm import relax  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

import tvm_scatter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(),
    "sum of rows": lambda x: x.sum(0),
    "sum of columns": lambda x: x.sum(1),
    "mean": lambda x: x.mean(0),
    "prod": lambda x: x.prod(),
    "norm": lambda x: x.norm(),
    "all": lambda x: (x > 0).all(),
    "any": lambda x: (x > 0).any(0),
    "product": lambda x: x.T @ x,
    "softmax": lambda x: x.softmax(0).sum(0),
}


def every(x: Any, mask: Any) -> tuple[Any, ...]:
    return tuple(reduction(x[mask]) for reduction in REDUCTIONS.values())


def check_every(machine: relax.VirtualMachine, device: str) -> None:
    x, some = torch.randn(7, 3), torch.rand(7) > 0.4
    for mask in (some, some & ~some, some | ~some):
        for name, found, wanted in zip(
            REDUCTIONS, run(machine, [x, mask], device), every(x, mask), strict=True
        ):
            torch.testing.assert_close(found, wanted, equal_nan=True, msg=f"{name} of {mask.sum()}")


def imported() -> tvm.IRModule:
    return from_exported_program(export(every, [torch.randn(7, 3), torch.rand(7) > 0.4]))


def test_reductions_of_none(device: str) -> None:
    if device == "cuda" and not real_gpu():
        pytest.skip("TVM's own reductions want the threads of a warp in step")
    check_every(compile_for(imported(), device), device)


def test_scheduled_reductions_of_none() -> None:
    target = target_of("llvm")
    built = tvm.compile(imported(), target, relax_pipeline=tvm_scatter.pipeline(target))
    check_every(relax.VirtualMachine(built, tvm.cpu()), "llvm")
