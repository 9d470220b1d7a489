"""Blocks whose dynamic shared memory alone is just below what every GPU grants.

With what they have of static memory it is more, and a GPU refuses the launch unless more was asked
for.
"""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from cuda_on_cpu import status

from tvm_scatter import strategy_for
from tvm_scatter.problem.scatter_problem import ScatterProblem
from tvm_scatter.problem.signature import Signature
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.selection.strategy import Branch, Selection
from tvm_scatter.selection.targets import parse_target
from tvm_scatter.tuning.measure.kernel import compile_selections

pytestmark = pytest.mark.skipif(not status(), reason="no simulated device")

UPDATES = 3000


@pytest.mark.parametrize(
    ("name", "dtype", "places", "arch", "knobs"),
    [
        # 4090 counters and 8192 entries of 4 bytes: 49 132 and 64 bytes.
        ("bucketed", "float32", 4090, "sm_90", {"bucket_bits": 0, "per_thread": 16}),
        # 2040 counters and 4096 values of 8 bytes with their places: 49 136 and 64.
        (
            "tiled",
            "float64",
            2040 << 8,
            "sm_90",
            {"bucket_bits": 8, "per_thread": 8, "tile_threads": 512},
        ),
        # 2040 pairs of counters and 4096 values of 4 bytes with their places: 49 088 and 128.
        ("partitioned", "float32", 2040 << 8, "sm_75", {"bucket_bits": 8}),
    ],
)
def test_more_is_asked_for(
    name: str, dtype: str, places: int, arch: str, knobs: dict[str, int]
) -> None:
    problem = ScatterProblem(
        batch=SymbolicSize(1),
        extents=(SymbolicSize(places),),
        slice=SymbolicSize(1),
        count=SymbolicSize(UPDATES),
        data_dtype=dtype,
        index_dtype="int64",
        reduction="add",
        wrap_negative=False,
        bounds="drop",
    )
    target = parse_target(arch)
    implementation = strategy_for("cuda").implementations[name]
    config = {**implementation.config(problem, target), **knobs}
    selection = Selection((Branch(implementation, config),), "forced", "")
    signature = Signature("test", (places,), ((UPDATES,),), (UPDATES,))
    [kernel] = compile_selections(problem, signature, [selection], target)
    random = np.random.default_rng(0)
    data = random.integers(-8, 8, places).astype(dtype)
    index = random.integers(0, places, UPDATES)
    updates = random.integers(-8, 8, UPDATES).astype(dtype)
    expected = data.copy()
    np.add.at(expected, index, updates)
    arrays = (data, index, updates, np.zeros_like(data))
    *operands, out = (tvm.runtime.tensor(array, tvm.cuda(0)) for array in arrays)
    workspace = tvm.runtime.empty((kernel.workspace_bytes,), "uint8", tvm.cuda(0))
    kernel.function(*operands, out, workspace)
    np.testing.assert_array_equal(out.numpy(), expected)
