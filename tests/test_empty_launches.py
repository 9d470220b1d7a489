"""Kernels over tensors of no elements, for which TVM's runtime launches a block all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tvm  # noqa: E402
from cuda_cases import cuda_target  # noqa: E402
from cuda_on_cpu import real_gpu, record  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch_harness import assert_same, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402
from tvm.script import tirx as T  # noqa: E402

from tvm_scatter.schedules.empty_launches import without_empty_launches  # noqa: E402
from tvm_scatter.schedules.guarded import GuardedDefaultSchedule  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

Function = Callable[[Any], Any]
#: With rows of 1024, blocks of 1024 threads cover the elements exactly.
PLAIN: dict[str, Function] = {
    "elementwise": torch.exp,
    "transposed": lambda x: torch.exp(x).T * 2,
    "columns": lambda x: x[:, :3] + 1,
    "product": lambda x: x @ torch.ones(1024, 8),
}
REDUCTIONS: dict[str, Function] = {
    "sum": lambda x: torch.exp(x).sum(1),
    "softmax": lambda x: torch.softmax(x, 1),
    "norm": lambda x: torch.nn.functional.layer_norm(x, (1024,)),
    "argmax": lambda x: x.argmax(1),
    "product with a vector": lambda x: x @ torch.ones(1024, 1),
}


def compiled(functions: dict[str, Function], device: str) -> Any:
    def every(x: Any) -> tuple[Any, ...]:
        return tuple(function(x) for function in functions.values())

    program = export(every, [torch.ones(5, 1024)], [{0: Dim("rows", max=90)}])
    return compile_for(from_exported_program(program), device)


def check(functions: dict[str, Function], rows: list[int], device: str) -> None:
    machine = compiled(functions, device)
    for count in rows:
        x = torch.rand(count, 1024)
        for (name, function), found in zip(
            functions.items(), run(machine, [x], device), strict=True
        ):
            assert_same(found, function(x), f"{name} of {count} rows")


def test_of_no_rows_or_some(device: str) -> None:
    check(PLAIN, [0, 3], device)


def test_reductions_of_no_rows(device: str) -> None:
    # On a simulated device, TVM's own reductions want the threads of a warp in step.
    check(REDUCTIONS, [0, 3] if device == "llvm" or real_gpu() else [0], device)


def test_nothing_is_launched(device: str) -> None:
    if device == "llvm" or real_gpu():
        pytest.skip("launches are recorded on the simulated device")
    machine = compiled({"elementwise": torch.exp}, device)
    with record() as log:
        run(machine, [torch.rand(0, 1024)], device)
    assert not log.launches


@T.prim_func(s_tir=True)
def doubled(A: T.Buffer((64, 1024), "float32"), B: T.Buffer((64, 1024), "float32")):
    for i, j in T.grid(64, 1024):
        with T.sblock("double"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            B[v_i, v_j] = A[v_i, v_j] * T.float32(2)


def test_launches_of_a_known_number_of_blocks_are_as_they_were() -> None:
    with cuda_target("sm_90"):
        function = GuardedDefaultSchedule(tvm.s_tir.dlight.gpu.Fallback())(
            tvm.IRModule({"main": doubled})
        )["main"]
    assert without_empty_launches(function) is function
