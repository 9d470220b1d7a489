"""A block of `owned_rows` gets the shared memory that its kernel has."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import tvm
from cuda_cases import cuda_target
from machine_code import cuda, needs_nvrtc, ptx
from test_columns_apart import check, operands
from tvm import relax

import tvm_scatter
from tvm_scatter import strategy_for
from tvm_scatter.ops.operators import index_put
from tvm_scatter.tuning.space.workloads import WORKLOADS

#: CUDA's limit of static and dynamic shared memory together, unless a launch asks for more dynamic.
_ALWAYS_BYTES = 48 << 10


def sums(dtype: str, updates: int, width: int) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType([4, width], dtype))
    index = relax.Var("index", relax.TensorType([updates], "int64"))
    values = relax.Var("updates", relax.TensorType([updates, width], dtype))
    with builder.function("main", [data, index, values]):
        builder.emit_func_output(builder.emit(index_put(data, [index], values, reduction="add")))
    return builder.get()


def dynamic_bytes(mod: tvm.IRModule) -> int:
    with cuda_target("sm_90"), tvm_scatter.options(implementation="owned_rows", bounds="trust"):
        text = relax.transform.LegalizeOps()(mod).script()
    [found] = re.findall(r"\(\((\d+),\), .uint8., scope=.shared.dyn.\)", text)
    return int(found)


@needs_nvrtc
@pytest.mark.parametrize(
    "updates",
    [16_000, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in (1, 1000, 1500, 2500))],
)
@pytest.mark.parametrize(
    ("dtype", "width"),
    [
        ("float16", 16),
        pytest.param("float32", 16, marks=pytest.mark.exhaustive),
        pytest.param("float64", 1, marks=pytest.mark.exhaustive),
    ],
)
def test_a_launch_asks_for_what_it_takes(dtype: str, width: int, updates: int) -> None:
    """Sums of float16 took 38 KB and lists 12, for which a launch must ask."""
    source = cuda(sums(dtype, updates, width), implementation="owned_rows", bounds="trust")
    static = sum(int(size) for size in re.findall(r"\.shared .*\[(\d+)\];", ptx(source)))
    assert static > 0
    dynamic = dynamic_bytes(sums(dtype, updates, width))
    assert static + dynamic <= _ALWAYS_BYTES or dynamic >= _ALWAYS_BYTES


def test_computed_rows_are_read_one_at_a_time(on_an_h200: None) -> None:
    """A record of stored rows says that two are faster, but computed ones take 1.2 of the time."""
    [workload] = [each for each in WORKLOADS if each.name == "MoE combine"]
    stored = workload.problem()
    computed = replace(stored, fused=True, fill="0.0", in_place=True)
    found = []
    for problem in (stored, computed):
        selection = strategy_for("cuda").select(problem, cuda_target("sm_90"))
        assert (selection.implementation.name, selection.source) == ("owned_rows", "tuned")
        found.append(selection.config["unroll"])
    assert found == [2, 1]
    # Another implementation's record is not taken because the knobs of the fastest are not offered.
    assert "51.4 us" in selection.reason


@pytest.mark.usefixtures("on_cuda")
@pytest.mark.parametrize("edges", [190, 700, 3000])
@pytest.mark.parametrize(("dtype", "width"), [("float32", 7), ("bfloat16", 16), ("float32", 140)])
@pytest.mark.turns(3)
def test_long_rows(dtype: str, width: int, edges: int) -> None:
    """One place has most of the edges, in as many shares as are no power of two."""
    check(operands(dtype, width, edges), False, "owned_rows")
