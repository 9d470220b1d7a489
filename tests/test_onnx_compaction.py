"""ONNX's ``NonZero`` and what models build from it, against ONNX's own evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from test_onnx_import import run  # noqa: E402

Array = np.ndarray[Any, Any]

DATA = np.arange(12, dtype="float32").reshape(4, 3) % 5
MASK = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]], "bool")
ROWS = np.array([1, 0, 0, 1], "bool")


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def model(nodes: Sequence[Any], inputs: dict[str, Array], result: str, rank: int) -> Any:
    """A model whose result has a size that is not known."""

    def info(name: str, array: Array) -> Any:
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        return helper.make_tensor_value_info(name, kind, array.shape)

    kind = onnx.TensorProto.INT64 if result == "positions" else onnx.TensorProto.FLOAT
    output = helper.make_tensor_value_info(result, kind, [None] * rank)
    graph = helper.make_graph(
        nodes, "g", [info(name, array) for name, array in inputs.items()], [output]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 10
    return made


LISTED = [node("NonZero", "mask", "listed"), node("Transpose", "listed", "tuples", perm=[1, 0])]
MODELS = {
    "NonZero": ([node("NonZero", "x", "positions")], {"x": DATA}, "positions", 2),
    "NonZero of a mask": ([node("NonZero", "x", "positions")], {"x": ROWS}, "positions", 2),
    "NonZero of none": ([node("NonZero", "x", "positions")], {"x": ROWS & ~ROWS}, "positions", 2),
    "read": (
        [*LISTED, node("GatherND", "x tuples", "read")],
        {"x": DATA, "mask": MASK},
        "read",
        1,
    ),
    "read and written": (
        [
            *LISTED,
            node("GatherND", "x tuples", "read"),
            node("Neg", "read", "values"),
            node("ScatterND", "x tuples values", "written"),
        ],
        {"x": DATA, "mask": MASK},
        "written",
        2,
    ),
    "rows written": (
        [
            *LISTED,
            node("GatherND", "x tuples", "rows"),
            node("Neg", "rows", "values"),
            node("ScatterND", "x tuples values", "written"),
        ],
        {"x": DATA, "mask": ROWS},
        "written",
        2,
    ),
    "Compress": (
        [node("Compress", "x mask", "chosen", axis=0)],
        {"x": DATA, "mask": ROWS},
        "chosen",
        2,
    ),
}


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", MODELS)
def test_agrees_with_onnx(name: str, device: str) -> None:
    nodes, inputs, result, rank = MODELS[name]
    made = model(nodes, inputs, result, rank)
    (expected,) = ReferenceEvaluator(made).run(None, inputs)
    (actual,) = run(made, list(inputs.values()), device)
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)
