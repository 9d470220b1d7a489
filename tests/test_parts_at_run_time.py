"""Rows that are read in parts, where only the sizes at run time say whether that is better."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from harness import called, compiled_with
from tvm import relax

from tvm_scatter.ops.operators import index_put
from tvm_scatter.strategies.cuda.steps import column_parts, segments

NODES, WIDTH = 40, 128


@pytest.fixture
def forms(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """No row fits into the cache, and all orders carry what they can; gives the forms in parts."""
    found: list[Any] = []
    in_parts = segments._Shape.in_parts

    def spied(shape: Any, operands: Any) -> Any:
        made = in_parts(shape, operands)
        found.extend(form for _, form in made)
        return made

    monkeypatch.setattr(column_parts, "_OF_CACHE", 1e-12)
    monkeypatch.setattr(segments, "_MANY_TO_CARRY", 0)
    monkeypatch.setattr(segments._Shape, "in_parts", spied)
    return found


def weighted_sums() -> tvm.IRModule:
    """The sum of x[source] * weight at the end of each edge."""
    builder = relax.BlockBuilder()
    edges = tvm.tirx.Var("edges", "int64")
    types = {"x": ([NODES, WIDTH], "float32"), "weight": ([edges, 1], "float32")}
    types |= {"source": ([edges], "int64"), "target": ([edges], "int64")}
    given = {name: relax.Var(name, relax.TensorType(*each)) for name, each in types.items()}
    with builder.function("main", [*given.values()]):
        with builder.dataflow():
            rows = builder.emit(relax.op.take(given["x"], given["source"], axis=0))
            message = builder.emit(relax.op.multiply(rows, given["weight"]))
            zeros = builder.emit(relax.op.zeros([NODES, WIDTH], "float32"))
            result = builder.emit(index_put(zeros, [given["target"]], message, reduction="add"))
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    return builder.get()


@pytest.mark.usefixtures("on_cuda")
def test_messages(forms: list[Any]) -> None:
    """Many reads of each row, few, and none."""
    wanted = {"implementation": "segmented", "bounds": "drop", "fuse": True}
    compiled = compiled_with(weighted_sums(), "cuda", **wanted)
    assert {(form.lanes, form.carries) for form in forms} == {(8, True)}
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


@pytest.mark.usefixtures("on_cuda")
def test_bags_of_a_known_table(forms: list[Any]) -> None:
    """The table says at compile time that parts are short; the words, whether there are any."""
    torch = pytest.importorskip("torch")
    from tvm_scatter.tuning.bench.models.applications import bags
    from tvm_scatter.tuning.bench.models.ours import imported

    case = bags("uniform", torch.float32, 2000)
    table, words, starts = case.inputs
    compiled = compiled_with(imported(case, dynamic=True), "cuda", fuse=True)
    assert {form.lanes for form in forms} == {8}
    for count in (len(words), 60, 1):
        inputs = table, words[:count], starts.clamp(max=count)
        wanted = torch.nn.functional.embedding_bag(words[:count], table, inputs[2], mode="sum")
        arrays = [each.numpy() for each in inputs]
        [found] = compiled["main"](*(tvm.runtime.tensor(each, tvm.cuda()) for each in arrays))
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-5)
