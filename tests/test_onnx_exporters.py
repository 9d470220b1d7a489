"""What torch.onnx writes of assignments, scatters and small models, by both of its exporters.

What onnxruntime runs must be right here. What it refuses must be refused here, too, or be right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
pytest.importorskip("torch")

import onnx_programs as programs
import tvm
from harness import device_of, target_of
from onnx_programs import Written, export, inputs
from tally import Tally
from test_onnx_idioms import expected
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

pytestmark = pytest.mark.filterwarnings("ignore")
Array = np.ndarray[Any, Any]

#: An exporter, an opset, and whether sizes vary.
EXPORTS = [
    ("dynamo", 18, False), ("dynamo", 18, True), ("dynamo", 20, False),
    ("legacy", 13, False), ("legacy", 17, False), ("legacy", 17, True),
]  # fmt: skip
PROGRAMS = [
    *programs.ASSIGNMENTS.strip().split("\n"),
    *programs.CALLS.strip().split("\n"),
    *programs.MODELS,
]
#: Programs that share a module by default: a new export costs more than a new program.
SAMPLE = (
    "x[i] = v", "x[m] = row", "x[m] += 1.0", "x[e] = sc", "x[i, j] = two", "x[:, c6] -= wide",
    "x3[:, 1:3, 2] = col[:, None]", "x[::2, 1::2] = -1.0", "x.scatter_reduce(0, at, v, 'amax')",
    "x.index_add(0, d, vd)", "x.masked_scatter(e, full)", "gcn", "moe_combine", "kv_batch",
)  # fmt: skip
#: Devices beside llvm: CUDA on the CPU, or on a GPU if there is one.
OTHERS = [("cuda", "exhaustive"), ("cuda", "gpu")]


def sizes(varying: bool) -> list[dict[str, Any]]:
    """The inputs that a model was exported with, and others if its sizes vary."""
    return [inputs(5, 3), inputs(7, 4)] if varying else [inputs(5, 3)]


class Machine:
    """A compiled model."""

    def __init__(self, made: Any, device: str) -> None:
        self.on = device_of(device)
        executable = tvm.compile(from_onnx(made), target_of(device))
        self.call = relax.VirtualMachine(executable, self.on)["main"]

    def __call__(self, given: Sequence[Array]) -> list[Array]:
        result = self.call(*(tvm.runtime.tensor(each, device=self.on) for each in given))
        results = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        return [each.numpy() for each in results]


def same(some: Sequence[Array], others: Sequence[Array]) -> bool:
    return len(some) == len(others) and all(
        left.shape == right.shape
        and left.dtype == right.dtype
        and np.allclose(left, right, rtol=1e-4, atol=_tolerance(left.dtype), equal_nan=True)
        for left, right in zip(some, others, strict=True)
    )


def _tolerance(dtype: Any) -> float:
    return 2e-2 if dtype == np.float16 else 1e-5


def outcome(program: str, exporter: str, opset: int, varying: bool, device: str = "llvm") -> str:
    """What becomes of a program."""
    module = Written([program]).eval()
    try:
        made = export(module, exporter, opset, varying)
    except Exception:
        return "refused by torch.onnx"
    names = [each.name for each in made.graph.input]
    given = [{name: each[name].numpy() for name in names} for each in sizes(varying)]
    wanted = [
        [each.numpy() for each in module(*(of[name] for name in module.names))]
        for of in sizes(varying)
    ]
    try:
        others = [expected(made, each) for each in given]
    except Exception:
        return _of_invalid(made, given, wanted, device)
    if not all(map(same, others, wanted)):
        return "another program by torch.onnx"
    try:
        machine = Machine(made, device)
        results = [machine(list(each.values())) for each in given]
    except Exception as error:
        return f"refused here: {type(error).__name__}: {error}"
    return "right" if all(map(same, results, wanted)) else "wrong"


def _of_invalid(made: Any, given: Sequence[Any], wanted: Sequence[Any], device: str) -> str:
    """What becomes of a model that onnxruntime refuses."""
    try:
        machine = Machine(made, device)
        results = [machine(list(each.values())) for each in given]
    except Exception:
        return "invalid by torch.onnx"
    return "right" if all(map(same, results, wanted)) else "wrong"


@pytest.mark.exhaustive
@pytest.mark.parametrize("program", PROGRAMS)
def test_each_program(program: str, tally: Tally) -> None:
    for exporter, opset, varying in EXPORTS:
        found = outcome(program, exporter, opset, varying)
        where = f"{program} by {exporter} {opset}, {'varying' if varying else 'fixed'} sizes"
        assert not found.startswith(("wrong", "refused here:")), f"{where}: {found}"
        tally(f"programs by torch.onnx {exporter} {opset}: {found}", 1)


@pytest.mark.parametrize(
    "on", ("llvm", *(pytest.param(on, marks=getattr(pytest.mark, mark)) for on, mark in OTHERS))
)
@pytest.mark.exhaustive
def test_programs_of_varying_sizes(on: str) -> None:
    module = Written(SAMPLE).eval()
    made = export(module, "dynamo", 18, varying=True)
    machine = Machine(made, on)
    for given in sizes(varying=True):
        wanted = module(*(given[name] for name in module.names))
        actual = machine([given[each.name].numpy() for each in made.graph.input])
        for program, left, right in zip(SAMPLE, actual, wanted, strict=True):
            assert same([left], [right.numpy()]), program
