"""Sizes that are numbers in tensors or arguments: an error in words if they are no sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from harness import device_of, target_of
from tvm import relax, tirx

from tvm_scatter.passes.check_exported_sizes import CheckExportedSizes
from tvm_scatter.passes.check_read_sizes import CheckReadSizes

#: Of these, TVM counts 4, 0 and fewer than no bytes of booleans or single precision.
NO_SIZES = [2**62 + 1, 2**61, 2**48 + 1, 2**63 - 1, -1, -(2**63)]


def machine(module: tvm.IRModule, device: str = "llvm") -> Any:
    return relax.VirtualMachine(tvm.compile(module, target_of(device)), device_of(device))


def repeated(dtype: str, count: int) -> tvm.IRModule:
    """A number, as often as the product of some numbers in a tensor."""
    x = relax.Var("x", relax.TensorType([1] * count, dtype))
    numbers = relax.Var("numbers", relax.TensorType([count], "int64"))
    sizes = [tirx.Var(name, "int64") for name in ("rows", "columns")[:count]]
    builder = relax.BlockBuilder()
    with builder.function("main", [x, numbers]):
        shape = builder.emit(relax.op.tensor_to_shape(numbers))
        builder.match_cast(shape, relax.ShapeType(sizes))
        builder.emit_func_output(builder.emit(relax.op.broadcast_to(x, sizes)))
    return builder.get()


def of_numbers(built: Any, dtype: str, numbers: list[int], device: str) -> Any:
    x = np.ones([1] * len(numbers), dtype)
    given = [tvm.runtime.tensor(each, device_of(device)) for each in (x, np.array(numbers))]
    return built["main"](*given).numpy()


@pytest.mark.parametrize("dtype", ["bool", "float32"])
def test_a_size(dtype: str, device: str) -> None:
    built = machine(repeated(dtype, 1), device)
    for size in (3, 0):
        assert of_numbers(built, dtype, [size], device).shape == (size,)
    for number in NO_SIZES:
        said = rf"main: the size rows of a tensor must be from 0 to 2\^48, but is {number}\.$"
        with pytest.raises(ValueError, match=said):
            of_numbers(built, dtype, [number], device)


@pytest.mark.parametrize("dtype", ["bool", "float32"])
def test_a_product_of_sizes(dtype: str) -> None:
    built = machine(repeated(dtype, 2))
    for sizes in ([3, 4], [0, 2**40], [2**20, 2]):
        assert of_numbers(built, dtype, sizes, "llvm").shape == tuple(sizes)
    for sizes in ([2**32, 2**32], [2**47, 2**48], [2**45, 2**20]):
        said = rf"larger than any memory, because rows is {sizes[0]} and columns is {sizes[1]}\.$"
        with pytest.raises(ValueError, match=said):
            of_numbers(built, dtype, sizes, "llvm")
    with pytest.raises(ValueError, match=r"the size columns of a tensor must be from 0 .* is -2"):
        of_numbers(built, dtype, [2, -2], "llvm")


@pytest.mark.parametrize("kind", ["shape", "number"])
def test_a_size_that_is_an_argument(kind: str) -> None:
    size = tirx.Var("size", "int64")
    x = relax.Var("x", relax.TensorType([1], "float32"))
    given = relax.Var("given", relax.ShapeType([size])) if kind == "shape" else size
    builder = relax.BlockBuilder()
    with builder.function("main", [x, given]):
        builder.emit_func_output(builder.emit(relax.op.broadcast_to(x, [size])))
    built, one = machine(builder.get()), tvm.runtime.tensor(np.ones(1, "float32"))

    def of(number: int) -> Any:
        return built["main"](one, tvm_shape(number) if kind == "shape" else number)

    def tvm_shape(number: int) -> Any:
        return tvm.runtime.ShapeTuple([number])

    assert of(3).shape == (3,)
    with pytest.raises(ValueError, match=rf"the size size of a tensor .* but is {2**62}\.$"):
        of(2**62)


def test_an_offset_of_a_size() -> None:
    """It is no size of a tensor itself, and may be negative."""
    rows, offset = tirx.Var("rows", "int64"), tirx.Var("offset", "int64")
    x = relax.Var("x", relax.TensorType([rows], "float32"))
    numbers = relax.Var("numbers", relax.TensorType([1], "int64"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, numbers]):
        shape = builder.emit(relax.op.tensor_to_shape(numbers))
        builder.match_cast(shape, relax.ShapeType([offset]))
        made = relax.op.full([rows + offset], relax.const(1.0, "float32"))
        builder.emit_func_output(builder.emit(made))
    built, x = machine(builder.get()), tvm.runtime.tensor(np.ones(5, "float32"))

    def of(number: int) -> Any:
        return built["main"](x, tvm.runtime.tensor(np.array([number]))).shape

    assert of(-2) == (3,)
    said = "negative size -1, because dimension 0 of x has size 5 and offset is -6"
    with pytest.raises(ValueError, match=said):
        of(-6)
    with pytest.raises(ValueError, match=f"larger than any memory, because .* offset is {2**62}"):
        of(2**62)


@pytest.mark.parametrize("check", [CheckReadSizes, CheckExportedSizes])
def test_modules_without_such_sizes_stay_as_they_are(check: Any) -> None:
    """Neither are sizes read, nor has an importer noted for which of them the module holds."""
    rows = tirx.Var("rows", "int64")
    x = relax.Var("x", relax.TensorType([rows], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.add(x, x)))
    lowered = relax.transform.VMShapeLower()(relax.transform.CallTIRRewrite()(builder.get()))
    assert check()(lowered).same_as(lowered)


ONNX = {
    "Expand": "(float[1] x, int64[1] n) => (float[p] y) { y = Expand(x, n) }",
    "Range": """(float[1] x, int64[1] n) => (int64[p] y) {
        one = Constant<value = int64 {1}>() zero = Constant<value = int64 {0}>()
        to = Squeeze(n) y = Range(zero, to, one) }""",
    "OneHot": """(float[1] x, int64[1] n) => (float[1, p] y) {
        at = Constant<value = int64[1] {0}>() values = Concat<axis = 0>(x, x)
        y = OneHot(at, n, values) }""",
    "CenterCropPad": "(float[1] x, int64[1] n) => (float[p] y) { y = CenterCropPad(x, n) }",
}


@pytest.mark.turns(2)
@pytest.mark.parametrize("operator", ONNX)
def test_sizes_of_onnx(operator: str, device: str) -> None:
    parser = pytest.importorskip("onnx.parser")
    from tvm.relax.frontend.onnx import from_onnx

    head = '<ir_version: 8, opset_import: ["" : 18]> g '
    built = machine(from_onnx(parser.parse_model(head + ONNX[operator])), device)
    assert of_numbers(built, "float32", [3], device).size == 3
    said = rf"the size {operator}_size0 of a tensor must .* {2**62}\.$"
    with pytest.raises(ValueError, match=said):
        of_numbers(built, "float32", [2**62], device)


@pytest.mark.each_device
def test_a_range_that_does_not_move(device: str) -> None:
    """A CPU would end the process where it divides by zero."""
    parser = pytest.importorskip("onnx.parser")
    from tvm.relax.frontend.onnx import from_onnx

    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
        g (int64 step) => (int64[p] y) {
        start = Constant<value = int64 {2}>() limit = Constant<value = int64 {9}>()
        y = Range(start, limit, step) }""")
    built, on = machine(from_onnx(model), device), device_of(device)
    for step, wanted in ((3, [2, 5, 8]), (-1, []), (7, [2])):
        result = built["main"](tvm.runtime.tensor(np.array(step), on))
        assert result.numpy().tolist() == wanted
    with pytest.raises(ValueError, match=r"Range: the step is 0; it must not be 0\.$"):
        built["main"](tvm.runtime.tensor(np.array(0), on))
