"""Scatters whose blocks count themselves, so that the host hears of bad indices while they run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import record, status
from harness import ProblemRunner, compile_all, device_of, target_of
from tvm.runtime import tensor

from tvm_scatter import ScatterProblem
from tvm_scatter.ops.operators import index_put, scatter_elements
from tvm_scatter.problem.reference import scatter_reference
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.strategies.cuda.codegen.target import shared_memory_limit

#: Places that take all the shared memory a block has.
FULL = shared_memory_limit(target_of("cuda")) // 4


def problem(batch: int, extent: int, count: int) -> ScatterProblem:
    return ScatterProblem(
        batch=SymbolicSize(batch),
        extents=(SymbolicSize(extent),),
        slice=SymbolicSize(),
        count=SymbolicSize(count),
        data_dtype="float32",
        index_dtype="int32",
        reduction="add",
        index_batch=batch > 1,
        bounds="drop",
    )


@pytest.mark.parametrize(
    ("name", "posed", "knobs"),
    [
        (
            "shared_bins",
            problem(1, 16, 290_000),
            {"blocks_per_multiprocessor": 1, "threads": 256, "unroll": 4},
        ),
        ("lane_bins", problem(1, 16, 410_001), {"unroll": 8}),
        ("shared_bins", problem(1, FULL, 3_000), {}),
        ("row_resident", problem(30, 40, 70), {"threads": 256}),
        ("row_resident", problem(6, FULL, 70), {}),
        ("row_resident", problem(5, 40, 70), {"threads": 256}),
    ],
    ids=["shared_bins", "lane_bins", "full bins", "row_resident", "full rows", "few rows"],
)
@pytest.mark.each_device
def test_no_bad_index_is_missed(
    device: str, name: str, posed: ScatterProblem, knobs: dict[str, int]
) -> None:
    """Not among the first updates, nor among the last, which are looked at in advance."""
    if device == "llvm":
        pytest.skip("there is nobody to tell")
    runner = ProblemRunner(device)
    runner.add("signals", posed, name, knobs, signals_drops=True)
    runner.add("plain", posed, name, knobs)
    generator = np.random.default_rng(7)
    items, extent = posed.items.constant, posed.extents[0].constant
    good = generator.integers(0, extent, items).astype("int32")
    data = np.zeros(posed.data_size.constant, "float32")
    updates = generator.standard_normal(items).astype("float32")
    places = [0, items // 2, items - items // 6 - 2, items - items // 7, items - 1]
    # A simulated device takes a second to clear so many bins.
    for place in places if extent < FULL else places[1:4:2]:
        bad = good.copy()
        bad[place] = extent
        found = runner.run("signals", data, [bad], updates)
        assert runner.dropped("signals"), place
        expected = scatter_reference(posed, data, [bad], updates)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-2)
    found = runner.run("signals", data, [good], updates)
    assert not runner.dropped("signals")
    if name == "lane_bins":
        plain = runner.run("plain", data, [good], updates)
        assert found.tobytes() == plain.tobytes(), "the order of the sums has changed"


CALLS: dict[str, tuple[str, Any, tuple[Any, ...]]] = {
    "bins": (
        "shared_bins",
        lambda d, i, u: index_put(d, [i], u, reduction="add"),
        (np.zeros(16, "float32"), np.zeros(5000, "int64"), np.ones(5000, "float32")),
    ),
    "rows": (
        "row_resident",
        lambda d, i, u: scatter_elements(d, i, u, 1, "max"),
        (np.zeros((30, 40), "float32"), np.zeros((30, 50), "int64"), np.ones((30, 50), "float32")),
    ),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("kind", ["on_drop"], indirect=True)
@pytest.mark.usefixtures("kind")
def test_nothing_is_launched_to_tell_the_host(name: str) -> None:
    if not status():
        pytest.skip("launches are counted on the simulated device")
    implementation, build, arrays = CALLS[name]
    arguments = [tensor(array, device=device_of("cuda")) for array in arrays]
    launches = {}
    for bounds in ("drop", "raise"):
        call = compile_all(
            {"main": (build, arrays)}, "cuda", bounds=bounds, implementation=implementation
        )["main"]
        call(*arguments)  # the first call also allocates what is kept
        with record() as log:
            call(*arguments)
        launches[bounds] = len(log.launches)
    assert launches["raise"] == launches["drop"] > 0
