"""Rows that are read in parts, where only the sizes at run time say whether that is better."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from harness import called, compiled_with
from tvm import relax

from tvm_scatter.ops.operators import index_put
from tvm_scatter.strategies.cuda.steps import column_parts, listed_rows

NODES, WIDTH = 40, 128


@pytest.fixture
def forms(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """No row fits into the cache; gives how many threads share a part in each form."""
    found: list[int] = []

    def spied(*given: Any) -> Any:
        made = column_parts.parts_at_run_time(*given)
        found.extend(lanes for lanes, _ in made)
        return made

    monkeypatch.setattr(column_parts, "_OF_CACHE", 1e-12)
    monkeypatch.setattr(listed_rows, "parts_at_run_time", spied)
    return found


def weighted_sums(nodes: Any) -> tvm.IRModule:
    """The sum of x[source] * weight at the end of each edge."""
    builder = relax.BlockBuilder()
    edges = tvm.tirx.Var("edges", "int64")
    types = {"x": ([nodes, WIDTH], "float32"), "weight": ([edges, 1], "float32")}
    types |= {"source": ([edges], "int64"), "target": ([edges], "int64")}
    given = {name: relax.Var(name, relax.TensorType(*each)) for name, each in types.items()}
    with builder.function("main", [*given.values()]):
        with builder.dataflow():
            rows = builder.emit(relax.op.take(given["x"], given["source"], axis=0))
            message = builder.emit(relax.op.multiply(rows, given["weight"]))
            zeros = builder.emit(relax.op.zeros([nodes, WIDTH], "float32"))
            result = builder.emit(index_put(zeros, [given["target"]], message, reduction="add"))
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    return builder.get()


@pytest.mark.usefixtures("on_cuda")
@pytest.mark.parametrize(
    ("known", "lanes"), [pytest.param(True, {8}, marks=pytest.mark.exhaustive), (False, {8, 16})]
)
def test_messages(forms: list[int], known: bool, lanes: set[int]) -> None:
    """Many reads of each row, few, and none; of a known table there is one form in parts."""
    wanted = {"implementation": "bucketed", "bounds": "drop", "fuse": True}
    nodes = NODES if known else tvm.tirx.Var("nodes", "int64")
    compiled = compiled_with(weighted_sums(nodes), "cuda", **wanted)
    assert set(forms) == lanes
    for edges in (900, 50, 1, 0):
        random = np.random.default_rng(edges)
        x = random.integers(-4, 5, (NODES, WIDTH)).astype("float32")
        weight = random.integers(-2, 3, (edges, 1)).astype("float32")
        source, target = (random.integers(0, NODES, edges) for _ in range(2))
        target[: edges // 2] = 1
        expected = np.zeros_like(x)
        np.add.at(expected, target, x[source] * weight)
        found = called(compiled, "cuda", [x, weight, source, target])
        np.testing.assert_array_equal(found, expected)
