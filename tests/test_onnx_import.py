"""ONNX's scatter operators, imported by TVM's ``from_onnx``, against ONNX and onnxruntime."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import tvm  # noqa: E402
from harness import device_of, target_of  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from tally import Tally  # noqa: E402
from tvm import relax  # noqa: E402
from tvm.relax.frontend.onnx import from_onnx  # noqa: E402

import tvm_scatter  # noqa: E402

OPERATORS = ("Scatter", "ScatterElements", "ScatterND", "TensorScatter", "Col2Im", "MaxUnpool")
READERS = ("Gather", "GatherElements", "GatherND", "OneHot")
Array = np.ndarray[Any, Any]


@lru_cache(maxsize=1)
def node_tests() -> dict[str, Any]:
    """The tests that the onnx package generates for the operators."""
    # Importing a module of this package makes its cases; importing all of them takes a long time.
    package = "onnx.backend.test.case.node"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for operator in (*OPERATORS, *READERS):
            import_module(f"{package}.{operator.lower()}")
    return {
        case.name: case
        for case in import_module(package)._NodeTestCases
        if any(node.op_type in (*OPERATORS, *READERS) for node in case.model.graph.node)
    }


def run(model: Any, inputs: Sequence[Array], device: str = "llvm") -> list[Array]:
    """Import, compile and run a model."""
    on = device_of(device)
    machine = relax.VirtualMachine(tvm.compile(from_onnx(model), target_of(device)), on)
    result = machine["main"](*(tvm.runtime.tensor(each, device=on) for each in inputs))
    results = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
    return [tensor.numpy() for tensor in results]


def model_of(
    operator: str, opset: int, inputs: dict[str, Array], output: Array, **attributes: Any
) -> Any:
    """A model of one node."""

    def info(name: str, array: Array) -> Any:
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        return helper.make_tensor_value_info(name, kind, array.shape)

    node = helper.make_node(operator, list(inputs), ["output"], **attributes)
    graph = helper.make_graph(
        [node], "g", [info(name, array) for name, array in inputs.items()], [info("output", output)]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 10
    return model


def check(operator: str, opset: int, inputs: dict[str, Array], **attributes: Any) -> None:
    """Compare with onnxruntime."""
    runtime = pytest.importorskip("onnxruntime")
    model = model_of(operator, opset, inputs, next(iter(inputs.values())), **attributes)
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (expected,) = session.run(None, inputs)
    (actual,) = run(model, list(inputs.values()))
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


@pytest.mark.parametrize("on", ("llvm", pytest.param("cuda", marks=pytest.mark.gpu)))
def test_every_node_test_that_onnx_generates(on: str, tally: Tally) -> None:
    tests = node_tests()
    assert len(tests) >= 28, sorted(tests)
    for name, case in tests.items():
        for inputs, outputs in case.data_sets:
            arrays = [
                numpy_helper.to_array(x) if hasattr(x, "HasField") else np.asarray(x)
                for x in inputs
            ]
            for actual, expected in zip(run(case.model, arrays, on), outputs, strict=True):
                np.testing.assert_allclose(actual, expected, rtol=1e-6, err_msg=name)
    tally("of ONNX's own node tests", len(tests))


def test_a_size_that_is_read_on_a_gpu() -> None:
    case = node_tests()["test_maxunpool_export_with_output_shape"]
    target = tvm.target.Target("nvidia/nvidia-h100")
    with target:
        relax.get_default_pipeline(target)(from_onnx(case.model))


@pytest.mark.turns(2)
@pytest.mark.parametrize("opset", (9, 10, 11, 13, 16, 18))
@pytest.mark.parametrize("axis", (0, 1, -1))
def test_elements(opset: int, axis: int) -> None:
    rng = np.random.default_rng(opset)
    data = rng.standard_normal((4, 5, 3)).astype("float32")
    # A box smaller than the data in every dimension.
    indices = np.argsort(rng.random((3, 3, 3)), axis=axis).astype("int64")
    indices[0] -= data.shape[axis]
    updates = rng.standard_normal(indices.shape).astype("float32")
    inputs = {"data": data, "indices": indices, "updates": updates}
    check("Scatter" if opset < 11 else "ScatterElements", opset, inputs, axis=axis)


READS = {
    "Gather": (np.array([[0, -4], [3, 1]]), {"axis": 1}),
    "GatherElements": (np.array([[[0, -4, 1]], [[2, 3, -1]]]), {"axis": 1}),
    "GatherND": (np.array([[0, -4], [-2, 3]]), {}),
}


@pytest.mark.parametrize("operator", READS)
@pytest.mark.parametrize("dtype", ("int32", "int64"))
def test_reads(operator: str, dtype: str) -> None:
    indices, attributes = READS[operator]
    dtype = "int64" if operator == "GatherND" else dtype
    data = np.random.default_rng(0).standard_normal((2, 4, 3)).astype("float32")
    check(operator, 13, {"data": data, "indices": indices.astype(dtype)}, **attributes)


@pytest.mark.parametrize("operator", READS)
@pytest.mark.parametrize("bad", (4, -5))
def test_a_bad_index_of_a_read(operator: str, bad: int) -> None:
    indices, attributes = READS[operator]
    data = np.ones((2, 4, 3), "float32")
    model = model_of(operator, 13, {"data": data, "indices": indices}, data, **attributes)
    indices = np.where(indices == -4, bad, indices)
    message = rf"{operator}: index {bad} at .* extent 4; it must be in \[-4, 3\]"
    with pytest.raises(IndexError, match=message):
        run(model, [data, indices])


@pytest.mark.turns(2)
@pytest.mark.parametrize("opset, reduction", [
    (16, "none"), (16, "add"), (16, "mul"), (18, "add"), (18, "mul"), (18, "min"), (18, "max"),
])  # fmt: skip
@pytest.mark.parametrize("dtype, index_dtype", [("float32", "int32"), ("int64", "int64")])
def test_elements_reductions(opset: int, reduction: str, dtype: str, index_dtype: str) -> None:
    rng = np.random.default_rng(0)
    data = (rng.standard_normal((4, 5)) * 10).astype(dtype)
    indices = rng.integers(-4, 4, (6, 2)).astype(index_dtype)
    if reduction == "none":
        indices = np.argsort(rng.random((4, 2)), axis=0).astype(index_dtype)
    updates = (rng.standard_normal(indices.shape) * 10).astype(dtype)
    inputs = {"data": data, "indices": indices, "updates": updates}
    check("ScatterElements", opset, inputs, axis=0, reduction=reduction)


@pytest.mark.turns(2)
@pytest.mark.parametrize("opset, reduction", [
    (11, None), (13, None), (16, "add"), (16, "mul"), (18, "min"), (18, "max"),
])  # fmt: skip
@pytest.mark.parametrize("components", (1, 2, 3))
def test_nd(opset: int, reduction: str | None, components: int) -> None:
    rng = np.random.default_rng(components)
    data = rng.standard_normal((4, 3, 2)).astype("float32")
    flat = rng.permutation(int(np.prod(data.shape[:components])))[:2]
    indices = np.stack(np.unravel_index(flat, data.shape[:components]), axis=-1).astype("int64")
    indices[0] -= data.shape[:components]
    if reduction:
        indices = np.concatenate([indices, indices])
    updates = rng.standard_normal((len(indices), *data.shape[components:])).astype("float32")
    inputs = {"data": data, "indices": indices, "updates": updates}
    check("ScatterND", opset, inputs, **({"reduction": reduction} if reduction else {}))


def reference_tensor_scatter(
    cache: Array, update: Array, starts: Array | None, axis: int, mode: str
) -> Array:
    """TensorScatter as its specification writes it."""
    result, extent = cache.copy(), cache.shape[axis]
    for at in np.ndindex(*update.shape):
        place = list(at)
        place[axis] += 0 if starts is None else int(starts[at[0]])
        if mode == "circular":
            place[axis] %= extent
        result[tuple(place)] = update[at]
    return result


@pytest.mark.parametrize("mode", ("linear", "circular"))
@pytest.mark.parametrize("shape, axis", [((2, 6, 3), 1), ((2, 3, 6, 4), -2), ((3, 2, 5), 2)])
@pytest.mark.parametrize("with_starts", (True, False))
def test_tensor_scatter(mode: str, shape: tuple[int, ...], axis: int, with_starts: bool) -> None:
    rng = np.random.default_rng(1)
    axis %= len(shape)
    cache = rng.standard_normal(shape).astype("float32")
    update = rng.standard_normal([2 if d == axis else n for d, n in enumerate(shape)])
    update = update.astype("float32")
    starts = None
    if with_starts:
        extent = shape[axis] if mode == "circular" else shape[axis] - 1
        starts = rng.integers(0, extent, shape[0]).astype("int64")
    inputs = {"past_cache": cache, "update": update}
    if starts is not None:
        inputs["write_indices"] = starts
    model = model_of("TensorScatter", 24, inputs, cache, axis=axis, mode=mode)
    (actual,) = run(model, list(inputs.values()))
    np.testing.assert_array_equal(
        actual, reference_tensor_scatter(cache, update, starts, axis, mode)
    )


def test_a_start_outside_the_cache_is_an_error() -> None:
    cache, update = np.zeros((2, 4, 3), "float32"), np.ones((2, 2, 3), "float32")
    inputs = {"past_cache": cache, "update": update, "write_indices": np.array([0, 3])}
    model = model_of("TensorScatter", 24, inputs, cache, axis=1)
    with pytest.raises(IndexError, match=r"TensorScatter: index 4 .* extent 4"):
        run(model, list(inputs.values()))


def symbolic_tensor_scatter() -> tvm.IRModule:
    """Rows for each entry of a batch, whose sizes the model does not know."""
    node = helper.make_node("TensorScatter", ["cache", "update", "at"], ["output"], axis=1)
    info = helper.make_tensor_value_info
    cache = info("cache", TensorProto.FLOAT, ["batch", "extent", "width"])
    update = info("update", TensorProto.FLOAT, ["other", "rows", "columns"])
    starts = info("at", TensorProto.INT64, ["starts"])
    output = info("output", TensorProto.FLOAT, ["batch", "extent", "width"])
    graph = helper.make_graph([node], "g", [cache, update, starts], [output])
    return from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)]))


def test_an_update_of_another_shape_than_the_cache() -> None:
    """It may have as many elements: three entries of two rows are no two entries of three."""
    cache = np.zeros((2, 4, 3), "float32")
    for update in (np.ones((3, 2, 2), "float32"), np.ones((1, 2, 3), "float32")):
        model = model_of(
            "TensorScatter", 24, {"past_cache": cache, "update": update}, cache, axis=1
        )
        with pytest.raises(tvm_scatter.ScatterError, match="TensorScatter: update of shape"):
            run(model, [cache, update])
    machine = relax.VirtualMachine(tvm.compile(symbolic_tensor_scatter(), "llvm"), tvm.cpu())

    def call(batch: int, width: int, starts: int) -> Array:
        update = np.ones((batch, 2, width), "float32")
        arrays = (cache, update, np.arange(starts))
        return machine["main"](*map(tvm.runtime.tensor, arrays)).numpy()

    expected = cache.copy()
    expected[0, :2] = expected[1, 1:3] = 1
    np.testing.assert_array_equal(call(2, 3, 2), expected)
    for wrong, said in (
        ((3, 2, 2), "update of size 3 in dimension 0 must have size 2"),
        ((2, 2, 2), "update of size 2 in dimension 2 must have size 3"),
        ((2, 3, 1), "write_indices of size 1 in dimension 0 must have size 2"),
        ((2, 3, 3), "write_indices of size 3 in dimension 0 must have size 2"),
    ):
        with pytest.raises(ValueError, match=f"TensorScatter: {said}"):
            call(*wrong)


def test_symbolic_sizes() -> None:
    node = helper.make_node("ScatterND", ["data", "indices", "updates"], ["output"])
    data = helper.make_tensor_value_info("data", TensorProto.FLOAT, ["n", 3])
    indices = helper.make_tensor_value_info("indices", TensorProto.INT64, ["k", 1])
    updates = helper.make_tensor_value_info("updates", TensorProto.FLOAT, ["k", 3])
    output = helper.make_tensor_value_info("output", TensorProto.FLOAT, ["n", 3])
    graph = helper.make_graph([node], "g", [data, indices, updates], [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    arrays = [np.zeros((5, 3), "float32"), np.array([[1], [-1]]), np.ones((2, 3), "float32")]
    expected = arrays[0].copy()
    expected[[1, 4]] = 1
    np.testing.assert_array_equal(run(model, arrays)[0], expected)


@pytest.mark.parametrize("opset, attributes, message", [
    (18, {"axis": 5}, "ScatterElements: axis 5 is out of range"),
    (18, {"reduction": "mean"}, "Only .* reductions are supported, but got mean, in opset 18"),
    (13, {"reduction": "add"}, "ScatterElements: Only none reductions are supported"),
    # A test of TVM's looks for these words.
    (18, {"reduction": "no"}, "Only .* reductions are supported, but got no"),
])  # fmt: skip
def test_bad_attributes(opset: int, attributes: dict[str, Any], message: str) -> None:
    data, indices = np.zeros((3, 3), "float32"), np.zeros((2, 2), "int64")
    inputs = {"data": data, "indices": indices, "updates": np.zeros((2, 2), "float32")}
    with warnings.catch_warnings(), pytest.raises(tvm_scatter.ScatterError, match=message):
        warnings.simplefilter("ignore")
        run(model_of("ScatterElements", opset, inputs, data, **attributes), list(inputs.values()))


def test_bad_shapes() -> None:
    data, indices = np.zeros((3, 3), "float32"), np.zeros((4, 4), "int64")
    inputs = {"data": data, "indices": indices, "updates": np.zeros((4, 4), "float32")}
    with warnings.catch_warnings(), pytest.raises(tvm_scatter.ScatterError, match="larger than"):
        warnings.simplefilter("ignore")
        run(model_of("ScatterElements", 18, inputs, data), list(inputs.values()))


def test_updates_of_another_shape_than_indices() -> None:
    data, indices = np.zeros((3, 3), "float32"), np.zeros((2, 3), "int64")
    inputs = {"data": data, "indices": indices, "updates": np.zeros((3, 3), "float32")}
    with pytest.raises(tvm_scatter.ScatterError, match=r"updates of shape \(3, 3\) must have"):
        run(model_of("ScatterElements", 18, inputs, data), list(inputs.values()))


def test_uninstall_gives_the_importer_back() -> None:
    from tvm.relax.frontend.onnx import onnx_frontend

    assert "TensorScatter" in onnx_frontend._get_convert_map()
    tvm_scatter.uninstall()
    try:
        table = onnx_frontend._get_convert_map()
        assert "TensorScatter" not in table
        assert onnx_frontend.ONNXGraphImporter.from_onnx.__module__ == onnx_frontend.__name__
        assert table["ScatterElements"] is onnx_frontend.ScatterElements
    finally:
        tvm_scatter.install()
    assert "TensorScatter" in onnx_frontend._get_convert_map()
    with tvm_scatter.options(enabled=False):
        assert "TensorScatter" not in onnx_frontend._get_convert_map()
