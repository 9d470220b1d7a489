"""What is reduced may be nothing at run time: a selection without a true entry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
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


def every(names: Sequence[str], x: Any, mask: Any) -> tuple[Any, ...]:
    return tuple(REDUCTIONS[name](x[mask]) for name in names)


def check_every(names: Sequence[str], machine: relax.VirtualMachine, device: str) -> None:
    x, some = torch.randn(7, 3), torch.rand(7) > 0.4
    for mask in (some, some & ~some, some | ~some):
        for name, found, wanted in zip(
            names, run(machine, [x, mask], device), every(names, x, mask), strict=True
        ):
            torch.testing.assert_close(found, wanted, equal_nan=True, msg=f"{name} of {mask.sum()}")
    refused = [name for name in REDUCTIONS if name not in names]
    if refused:
        pytest.skip(f"PyTorch {torch.__version__} does not export {' and '.join(refused)}")


def exported(names: Sequence[str]) -> Any:
    return export(partial(every, names), [torch.randn(7, 3), torch.rand(7) > 0.4])


def imported() -> tuple[Sequence[str], tvm.IRModule]:
    """The reductions that this version of PyTorch exports, in one module."""
    names = list(REDUCTIONS)
    try:
        program = exported(names)
    except Exception:  # PyTorch has many errors for what it cannot trace
        names = [name for name in names if is_exported(name)]
        program = exported(names)
    return names, from_exported_program(program)


def is_exported(name: str) -> bool:
    try:
        exported([name])
    except Exception:
        return False
    return True


def test_reductions_of_none(device: str) -> None:
    if device == "cuda" and not real_gpu():
        pytest.skip("TVM's own reductions want the threads of a warp in step")
    names, module = imported()
    check_every(names, compile_for(module, device), device)


def test_scheduled_reductions_of_none() -> None:
    target = target_of("llvm")
    names, module = imported()
    built = tvm.compile(module, target, relax_pipeline=tvm_scatter.pipeline(target))
    check_every(names, relax.VirtualMachine(built, tvm.cpu()), "llvm")


#: What there is not among no elements.
CHOICES: dict[str, Callable[[Any], Any]] = {
    "max": lambda x: x.max(),
    "amin": lambda x: x.amin(0),
    "max of integers": lambda x: x.long().max(),
    "argmax": lambda x: x.argmax(),
    "argmin": lambda x: x.argmin(0),
    "min along a dimension": lambda x: x.min(0)[0],
    "median along a dimension": lambda x: x.median(0)[0],
    "median of integers": lambda x: x.long().median(),
    "kthvalue": lambda x: x.kthvalue(2, 0)[0],
    "topk": lambda x: x.topk(2, 0)[0],
    "mode": lambda x: x.mode(0)[0],
}


def imported_choice(choice: Callable[[Any], Any]) -> tvm.IRModule:
    given = [torch.randn(7, 3), torch.ones(7, dtype=torch.bool)]
    return from_exported_program(export(lambda x, mask: choice(x[mask]), given))


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.turns(3)
def test_there_is_no_choice_of_none(name: str) -> None:
    machine = compile_for(imported_choice(CHOICES[name]))
    x, mask = torch.randn(7, 3), torch.arange(7) % 3 > 0
    (found,) = run(machine, [x, mask])
    torch.testing.assert_close(found, CHOICES[name](x[mask]))
    with pytest.raises(ValueError, match=r"self, of which . or more are needed, of size 0"):
        run(machine, [x, mask & ~mask])


def test_there_is_no_choice_of_none_on_a_gpu(device: str) -> None:
    machine = compile_for(imported_choice(CHOICES["topk"]), device)
    with pytest.raises(ValueError, match=r"topk: self, of which 2 or more are needed, of size 0"):
        run(machine, [torch.randn(7, 3), torch.zeros(7, dtype=torch.bool)], device)


def test_the_median_of_none_is_not_a_number(device: str) -> None:
    if device == "cuda" and not real_gpu():
        pytest.skip("TVM's own reductions want the threads of a warp in step")
    machine = compile_for(imported_choice(lambda x: (x.median(), x.nanmedian())), device)
    for mask in (torch.zeros(7, dtype=torch.bool), torch.arange(7) > 2):
        x = torch.randn(7, 3)
        for found, wanted in zip(
            run(machine, [x, mask], device), (x[mask].median(), x[mask].nanmedian()), strict=True
        ):
            torch.testing.assert_close(found, wanted, equal_nan=True)
