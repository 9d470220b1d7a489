"""Blocks whose dynamic shared memory alone is just below what every GPU grants.

With what they have of static memory it is more, and a GPU refuses the launch unless more was asked
for.
"""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from cuda_on_cpu import status
from harness import assert_same
from random_problems import draw_operands
from test_bucketed import compiled_with_knobs
from test_costs import problem

from tvm_scatter.problem.reference import scatter_reference

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
@pytest.mark.turns(3)
def test_more_is_asked_for(
    name: str, dtype: str, places: int, arch: str, knobs: dict[str, int]
) -> None:
    more = {"wrap_negative": False, "bounds": "drop"}
    posed = problem("add", dtype, (1, places, UPDATES, 1), more)
    [kernel] = compiled_with_knobs(posed, name, [knobs], arch)
    data, indices, updates = draw_operands(posed, seed=1)
    arrays = (data, *indices, updates, np.zeros_like(data))
    *operands, out = (tvm.runtime.tensor(array, tvm.cuda(0)) for array in arrays)
    workspace = tvm.runtime.empty((kernel.workspace_bytes,), "uint8", tvm.cuda(0))
    kernel.function(*operands, out, workspace)
    assert_same(out.numpy(), scatter_reference(posed, data, indices, updates), name)
