"""One record says all of a kind of target; implementations for it are all that it takes besides."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from cuda_cases import CASES, module
from tvm.target import Target
from tvm.tirx.script import builder as T

import tvm_scatter
from tvm_scatter import Implementation, OpStrategy, ScatterError, ScatterProblem
from tvm_scatter.emit.operands import Operands
from tvm_scatter.selection import backend, strategy
from tvm_scatter.selection.backend import Backend, backend_for, backend_of, backends
from tvm_scatter.selection.strategy import register_strategy
from tvm_scatter.selection.targets import need_device, parse_target

OPENCL = Backend("opencl", device="opencl", is_gpu=True, bounds="drop")


class Line(Implementation):
    """Stores single elements, one after the other."""

    name = "line"
    deterministic = True

    def refusal(self, problem: ScatterProblem, target: Any) -> str | None:
        is_line = problem.batch.is_one and problem.slice.is_one and problem.reduces.is_store
        return None if is_line else "it stores single elements"

    def emit(self, operands: Operands, config: Any) -> None:
        sizes, out = operands.sizes, operands.out
        with T.launch_thread("blockIdx.x", 1), T.launch_thread("threadIdx.x", 1):
            if operands.data is not None:
                with T.serial(sizes.extent) as i:
                    T.buffer_store(out, operands.data[i], [i])
            with T.serial(sizes.count) as i:
                place = operands.indices[0][i]
                with T.If(tvm.tirx.all(place >= 0, place < sizes.extent)):
                    with T.Then():
                        T.buffer_store(out, operands.updates[i], [place])


@pytest.fixture
def opencl(monkeypatch: pytest.MonkeyPatch) -> Target:
    """A kind more, for this test."""
    monkeypatch.setattr(backend, "_BACKENDS", {**backend._BACKENDS})
    monkeypatch.setattr(strategy, "_STRATEGIES", {**strategy._STRATEGIES})
    register_strategy(OpStrategy(OPENCL)).add_implementation(Line())
    return Target("opencl", host="llvm")


def test_every_kind_with_a_strategy_has_a_record() -> None:
    for each in backends():
        found = tvm_scatter.strategy_for(each.kind)
        assert found is not None
        assert found.backend is each
        assert OpStrategy(each.kind).backend is each


def test_a_record_and_an_implementation_are_all_that_a_kind_takes(opencl: Target) -> None:
    built = tvm.compile(module(["few_f32_update"]), opencl)
    modules = [each for part in built.mod.imports for each in (part, *part.imports)]
    [kernels] = [each for each in modules if each.kind == "opencl"]
    assert "scatter_update_line_kernel" in kernels.inspect_source()
    [explanation] = tvm_scatter.explain(module(["few_f32_update"]), opencl)
    assert explanation.problem is not None
    assert explanation.problem.bounds == "drop"
    [task] = tvm_scatter.extract_tasks(module(["few_f32_update"]), opencl)
    assert task.problem == explanation.problem


def test_what_no_implementation_takes_is_refused(opencl: Target) -> None:
    with pytest.raises(
        ScatterError, match=r"no implementation for opencl .*; line: it stores single"
    ):
        tvm.compile(module(["line_f32_add"]), opencl)


def test_the_host_reads_no_indices_of_a_gpu(opencl: Target) -> None:
    with (
        tvm_scatter.options(bounds="raise"),
        pytest.raises(ScatterError, match="'raise': nothing checks indices on target opencl"),
    ):
        tvm.compile(module(["few_f32_update"]), opencl)


def test_nothing_is_promised_of_other_kinds() -> None:
    assert backend_of(Target("metal")) == Backend("metal")
    assert backend_for("metal").architecture(Target("metal")) == ""
    with pytest.raises(ScatterError, match="no device for target metal"):
        need_device(Target("metal"))


def test_targets_are_found_by_their_architecture(opencl: Target) -> None:
    assert backend_of(parse_target("sm_90")).architecture(parse_target("sm_90")) == "sm_90"
    assert parse_target("opencl").kind.name == "opencl"
    assert backend_for("llvm").architecture(Target("llvm")) == ""


@pytest.mark.parametrize("name", ["sm_", "sm_\u00b35", "sm_-90", "sm_9 0", "sm_90;rm", "sm_9999"])
def test_what_is_no_architecture(name: str) -> None:
    target = Target({"kind": "cuda", "arch": name})
    with pytest.raises(ScatterError, match="must be an architecture such as sm_90"):
        tvm_scatter.explain(module([next(iter(CASES))]), target)
