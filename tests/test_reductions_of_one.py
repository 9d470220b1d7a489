"""Sums, greatest elements and products over one element, which TVM takes for no reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tvm  # noqa: E402
from cuda_cases import cuda_target  # noqa: E402
from harness import device_of, relax_function, target_of  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch_harness import assert_same, compile_for, export, run  # noqa: E402
from tvm import relax  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402
from tvm.s_tir import dlight  # noqa: E402
from tvm.script import tirx as T  # noqa: E402

import tvm_scatter  # noqa: E402
from tvm_scatter.schedules.cpu.spatial import Spatial  # noqa: E402
from tvm_scatter.schedules.guarded import GuardedDefaultSchedule  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

ROWS = 67
Function = Callable[[Any], Any]
_generator = torch.Generator().manual_seed(0)


def drawn(*shape: int) -> Any:
    return torch.randn(*shape, generator=_generator)


#: By their shapes; those of one dimension by their lengths.
WEIGHTS = {
    shape if len(shape) > 1 else shape[0]: drawn(*shape)
    for shape in [
        (8, 1),
        (8,),
        (1, 64),
        (64,),
        (1, 1),
        (1,),
        (3, 1, 5),
        (5,),
        (1, 5),
        (4, 1, 1, 1),
        (4,),
        (1, 1, 1, 1),
    ]
}
#: Of a column (or a batch of them, or an image of one channel), with what is fused behind.
COLUMN: dict[str, Function] = {
    "linear": lambda x: torch.nn.functional.linear(x, WEIGHTS[8, 1], WEIGHTS[8]).relu(),
    "product": lambda x: (x @ WEIGHTS[1, 64] + WEIGHTS[64]).relu(),
    "product with a scalar": lambda x: x @ WEIGHTS[1, 1] + WEIGHTS[1],
    "outer product": lambda x: x @ x.T + 1,
    "sum": lambda x: torch.exp(x.sum(1) + 2) - 3,
    "sum of squares": lambda x: (x * x).sum(1).sqrt() + 1,
    "mean": lambda x: x.mean(1) * 2 + 1,
    "variance": lambda x: x.var(1, correction=0) + 1,
    "product of elements": lambda x: x.prod(1) + 1,
    "max": lambda x: x.amax(1) * -1 + 2,
    "argmax": lambda x: x.argmax(1) + 1,
    "max and its place": lambda x: x.max(1),
    "any": lambda x: (x > 0).any(1) & True,
    "softmax": lambda x: torch.softmax(x, 1) + 1,
    "logsumexp": lambda x: torch.logsumexp(x, 1) + 1,
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (1,), WEIGHTS[1], WEIGHTS[1]) + 1,
    "norm": lambda x: torch.nn.functional.normalize(x) + 1,
    "cumsum": lambda x: x.cumsum(1) + 1,
}
BATCH: dict[str, Function] = {
    "batch product": lambda x: (x @ WEIGHTS[3, 1, 5] + WEIGHTS[5]).relu(),
    "shared matrix": lambda x: (x @ WEIGHTS[1, 5] + WEIGHTS[5]).relu(),
    "sum": lambda x: x.sum(2) + 1,
    "attention to one key": lambda x: torch.nn.functional.scaled_dot_product_attention(
        x, x[:, :1], x[:, :1]
    ),
}
IMAGE: dict[str, Function] = {
    "conv1x1": lambda x: torch.nn.functional.conv2d(x, WEIGHTS[4, 1, 1, 1], WEIGHTS[4]).relu(),
    "depthwise": lambda x: torch.nn.functional.conv2d(x, WEIGHTS[1, 1, 1, 1], WEIGHTS[1]) + 1,
    "mean of channels": lambda x: x.mean(1) + 1,
    "pool of one": lambda x: torch.nn.functional.max_pool2d(x, 1) + 1,
    "average pool of one": lambda x: torch.nn.functional.avg_pool2d(x, 1) + 1,
}
CASES = {"column": (COLUMN, (ROWS, 1)), "batch": (BATCH, (3, 7, 1)), "image": (IMAGE, (2, 1, 5, 6))}


def every(functions: dict[str, Function]) -> Callable[[Any], tuple[Any, ...]]:
    def call(x: Any) -> tuple[Any, ...]:
        results: list[Any] = []
        for function in functions.values():
            result = function(x)
            results.extend(result if isinstance(result, Sequence) else [result])
        return tuple(results)

    return call


def compiled(function: Function, x: Any, sizes: Any, device: str) -> relax.VirtualMachine:
    """Compiled for a device: with default schedules, which CPUs have only if they are asked for."""
    module = from_exported_program(export(function, [x], sizes))
    if device != "llvm":
        return compile_for(module, device)
    target = target_of(device)
    built = tvm.compile(module, target, relax_pipeline=tvm_scatter.pipeline(target))
    return relax.VirtualMachine(built, tvm.cpu())


def check(case: str, sizes: Any, device: str) -> None:
    functions, shape = CASES[case]
    function, x = every(functions), drawn(*shape)
    found = run(compiled(function, x, sizes, device), [x], device)
    for number, (result, wanted) in enumerate(zip(found, function(x), strict=True)):
        assert_same(result, wanted, f"result {number} of {', '.join(functions)}")


@pytest.mark.turns(3)
@pytest.mark.parametrize("case", CASES)
def test_reductions_of_one(case: str, device: str) -> None:
    check(case, None, device)


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", CASES)
def test_of_a_symbolic_number_of_rows(case: str, device: str) -> None:
    check(case, [{1 if case == "batch" else 0: Dim("rows", max=90)}], device)


def test_attention_of_one_number_each(device: str) -> None:
    if device == "cuda":
        pytest.skip("TVM's own reductions want the threads of a warp in step")
    x = drawn(3, 7, 1)

    def attention(x: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    (found,) = run(compiled(attention, x, None, device), [x], device)
    assert_same(found, attention(x))


#: A whole reduction that writes a value and its place.
PLACES = {"argmax": relax.op.argmax, "argmin": relax.op.argmin}


@pytest.mark.parametrize("name", PLACES)
def test_places_in_two_tensors(name: str, device: str) -> None:
    x = np.random.default_rng(0).standard_normal((ROWS, 1)).astype("float32")
    builder = relax.BlockBuilder()

    def build(given: Any) -> Any:
        emit = relax.BlockBuilder.current().emit
        return emit(relax.op.add(emit(PLACES[name](given, 1)), relax.const(3, "int64")))

    relax_function(builder, "main", build, [x])
    on = device_of(device)
    machine = relax.VirtualMachine(tvm.compile(builder.get(), target_of(device)), on)
    found = machine["main"](tvm.runtime.tensor(x, on)).numpy()
    np.testing.assert_array_equal(found, np.full(ROWS, 3))


@T.prim_func(s_tir=True)
def greatest(
    A: T.Buffer((ROWS, 1), "float32"),
    bias: T.Buffer((ROWS,), "float32"),
    value: T.Buffer((ROWS,), "float32"),
    place: T.Buffer((ROWS,), "float32"),
):
    """The second result is computed from the first, with what follows fused behind both."""
    best = T.sblock_alloc_buffer((ROWS,))
    where = T.sblock_alloc_buffer((ROWS,))
    for i, k in T.grid(ROWS, 1):
        with T.sblock("greatest"):
            v_i, v_k = T.axis.remap("SR", [i, k])
            T.reads(A[v_i, v_k])
            T.writes(best[v_i], where[v_i])
            with T.init():
                best[v_i] = T.float32(-5)
                where[v_i] = T.float32(-7)
            best[v_i] = T.max(best[v_i], A[v_i, v_k])
            where[v_i] = T.Select(
                best[v_i] == A[v_i, v_k], T.Cast("float32", v_k) + 1.0, where[v_i]
            )
    for i in range(ROWS):
        with T.sblock("value"):
            v_i = T.axis.spatial(ROWS, i)
            value[v_i] = best[v_i] + bias[v_i]
    for i in range(ROWS):
        with T.sblock("place"):
            v_i = T.axis.spatial(ROWS, i)
            place[v_i] = where[v_i] + bias[v_i]


@pytest.mark.each_device
def test_results_that_are_written_one_after_the_other(device: str) -> None:
    generator = np.random.default_rng(0)
    a, bias = generator.normal(-5, 2, (ROWS, 1)), generator.normal(size=ROWS)
    given = [each.astype("float32") for each in (a, bias)]
    with cuda_target("sm_90") if device != "llvm" else target_of(device):
        rules = [Spatial()] if device == "llvm" else [dlight.gpu.Fallback()]
        module = GuardedDefaultSchedule(*rules)(tvm.IRModule({"main": greatest}))
    on = device_of(device)
    function = tvm.compile(module, target_of(device))
    results = [tvm.runtime.empty((ROWS,), "float32", on) for _ in range(2)]
    function(*(tvm.runtime.tensor(each, on) for each in given), *results)
    best = np.maximum(given[0][:, 0], np.float32(-5))
    np.testing.assert_array_equal(results[0].numpy(), best + given[1])
    where = np.where(best == given[0][:, 0], np.float32(1), np.float32(-7))
    np.testing.assert_array_equal(results[1].numpy(), where + given[1])


def test_one_at_run_time_only(device: str) -> None:
    """The extent is symbolic: a reduction stays one."""
    if device == "cuda":
        pytest.skip("TVM's own reductions want the threads of a warp in step")
    functions = {name: COLUMN[name] for name in ("sum", "mean", "max")}
    functions["product"] = lambda x: (x @ x.T + 1).relu()
    function = every(functions)
    sizes = [{1: Dim("columns", max=90)}]
    machine = compiled(function, drawn(5, 4), sizes, device)
    for columns in (1, 3):
        x = drawn(5, columns)
        for found, wanted in zip(run(machine, [x], device), function(x), strict=True):
            assert_same(found, wanted)
