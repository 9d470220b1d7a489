"""Kernels over tensors of no elements, for which TVM's runtime launches a block all the same."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tvm  # noqa: E402
from cuda_cases import cuda_target  # noqa: E402
from cuda_on_cpu import real_gpu, record  # noqa: E402
from harness import device_of, target_of  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch_harness import assert_same, compile_for, export, run  # noqa: E402
from tvm import relax, tirx  # noqa: E402
from tvm.relax.backend import gpu_generic  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

from tvm_scatter import graphed, options  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

Function = Callable[[Any], Any]
#: With rows of 1024, blocks of 1024 threads cover the elements exactly.
PLAIN: dict[str, Function] = {
    "elementwise": torch.exp,
    "transposed": lambda x: torch.exp(x).T * 2,
    "columns": lambda x: x[:, :3] + 1,
    "product": lambda x: x @ torch.ones(1024, 8),
    "product with itself": lambda x: x @ (2 * x).mT,
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


@pytest.mark.each_device
def test_reductions_of_no_rows(device: str) -> None:
    # On a simulated device, TVM's own reductions want the threads of a warp in step.
    check(REDUCTIONS, [0, 3] if device == "llvm" or real_gpu() else [0], device)


def test_a_number_of_rows_known_to_be_zero(device: str) -> None:
    functions = PLAIN | REDUCTIONS
    x = torch.ones(0, 1024)
    module = from_exported_program(export(lambda x: tuple(f(x) for f in functions.values()), [x]))
    machine = compile_for(module, device)
    for (name, function), found in zip(functions.items(), run(machine, [x], device), strict=True):
        assert_same(found, function(x), name)


def test_nothing_is_launched(device: str) -> None:
    if device == "llvm" or real_gpu():
        pytest.skip("launches are recorded on the simulated device")
    machine = compiled({"elementwise": torch.exp}, device)
    with record() as log:
        run(machine, [torch.rand(0, 1024)], device)
    assert not log.launches


def scheduled(functions: dict[str, Function], sizes: Any) -> str:
    """What TVM's default pipeline for GPUs makes of functions, up to their schedules."""

    def every(x: Any) -> tuple[Any, ...]:
        return tuple(function(x) for function in functions.values())

    module = from_exported_program(export(every, [torch.ones(5, 1024)], sizes))
    with cuda_target("sm_90") as target:
        return str(tvm.transform.Sequential(gpu_generic.legalize_passes(target))(module).script())


def test_launches_of_a_known_number_of_blocks_are_as_they_were() -> None:
    functions = PLAIN | REDUCTIONS
    assert "for launch in" in scheduled(functions, [{0: Dim("rows", max=90)}])
    assert "for launch in" not in scheduled(functions, None)


def chains(capture_symbols: bool = False, **switches: Any) -> relax.VirtualMachine:
    """A chain of products of a tensor of known sizes, and of one with a symbolic number of rows."""
    count = tirx.Var("rows", "int64")
    fixed = relax.Var("fixed", relax.TensorType([40, 16], "float32"))
    x = relax.Var("x", relax.TensorType([count, 16], "float32"))
    attributes: dict[str, Any] = {"tir_var_upper_bound": {"rows": 90}}
    if capture_symbols:
        attributes["relax.rewrite_cuda_graph.capture_symbolic_vars"] = ["rows"]
    builder = relax.BlockBuilder()
    with builder.function("main", [fixed, x], attrs=attributes):
        with builder.dataflow():
            results = [chain(builder, fixed), chain(builder, x)]
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    with options(**switches):
        built = tvm.compile(builder.get(), target_of("cuda"))
    return relax.VirtualMachine(built, device_of("cuda"))


def chain(builder: relax.BlockBuilder, x: Any) -> Any:
    """Products with a diagonal matrix, which TVM does not fuse with each other."""
    for _ in range(4):
        diagonal = relax.const(2 * np.eye(16, dtype="float32"))
        x = builder.emit(relax.op.abs(builder.emit(relax.op.matmul(x, diagonal))))
    return x


def drawn(count: int) -> list[Any]:
    return [torch.randn(rows, 16).numpy() for rows in (40, count)]


def check_chains(found: Any, arrays: list[Any]) -> None:
    for result, array in zip(found, arrays, strict=True):
        assert_same(torch.from_numpy(result.numpy()), torch.from_numpy(array).abs() * 16)


@pytest.mark.parametrize("capture_symbols", [False, True], ids=["sizes known", "all"])
@pytest.mark.each_device
def test_of_no_rows_with_graphs(capture_symbols: bool, device: str) -> None:
    if device == "llvm":
        pytest.skip("CPUs have no graphs")
    machine = chains(capture_symbols, cuda_graph=True)
    for call, count in enumerate((3, 0, 5, 0, 3)):
        arrays = drawn(count)
        given = [tvm.runtime.tensor(array, device_of(device)) for array in arrays]
        with nullcontext() if real_gpu() else record() as log:
            found = machine["main"](*given)
        assert log is None or call == 0 or log.count("graph_launch") >= 1
        check_chains(found, arrays)


def test_of_no_rows_in_one_graph(device: str) -> None:
    if device == "llvm":
        pytest.skip("CPUs have no graphs")
    machine = chains()
    for count in (0, 3):
        call = graphed(machine, "main", drawn(count))
        for _ in range(2):
            arrays = drawn(count)
            check_chains(call(*arrays), arrays)
