"""Neither TVM's fusion nor ours computes anything before the sizes that it needs are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from harness import device_of, target_of
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import tvm_scatter
from tvm_scatter.ops import operators as ops
from tvm_scatter.ops.compaction import true_positions
from tvm_scatter.ops.host_numbers import on_host

H100 = tvm.target.Target("nvidia/nvidia-h100")


@I.ir_module
class ReadBehindItsUse:
    """``x * x`` is fused with ``+``, so all that ``+`` needs is computed where ``x * x`` was."""

    @R.function
    def main(x: R.Tensor((8,), "float32"), size: R.Tensor((1,), "int64")):
        n = T.int64()
        with R.dataflow():
            square = R.multiply(x, x)
            read = R.tensor_to_shape(size)
            known = R.match_cast(read, R.Shape([n]))  # noqa: F841
            total = R.sum(R.ones(R.shape([n]), "float32"))
            result = R.add(square, total)
            R.output(result)
        return result


@I.ir_module
class TwoSizes:
    """The second size is read from what the first decides; both results leave the block."""

    @R.function
    def main(x: R.Tensor((8,), "float32"), size: R.Tensor((1,), "int64")):
        n, m = T.int64(), T.int64()
        with R.dataflow():
            square = R.multiply(x, x)
            first = R.match_cast(R.tensor_to_shape(size), R.Shape([n]))  # noqa: F841
            ones = R.ones(R.shape([n]), "int64")
            more = R.reshape(R.sum(ones), R.shape([1]))
            doubled = R.add(more, more)
            second = R.match_cast(R.tensor_to_shape(doubled), R.Shape([m]))  # noqa: F841
            total = R.sum(R.ones(R.shape([m]), "float32"))
            result = R.add(square, total)
            R.output(ones, result)
        return (ones, result)


def numbers_of_masks() -> tvm.IRModule:
    """A number made from each of two masks' counts, joined with what is known before both."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([8], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit(relax.op.multiply(x, x))
            for least in (2.0, 5.0):
                mask = builder.emit(relax.op.greater(x, relax.const(least)))
                count = tvm.tirx.Var("count", "int64")
                found = builder.emit(true_positions(mask))
                builder.match_cast(found, relax.TensorType([count], "int64"))
                ones = builder.emit(relax.op.ones(relax.ShapeExpr([count]), "float32"))
                total = builder.emit(relax.op.sum(ones))
                result = builder.emit(relax.op.add(result, total))
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    return builder.get()


def scatters_around_a_size() -> tvm.IRModule:
    """Two scatters of one shape, of which the second needs the first for a size alone."""
    builder = relax.BlockBuilder()
    index = relax.Var("index", relax.TensorType([8], "int64"))

    def count(places: relax.Expr) -> relax.Var:
        zeros, one = builder.emit(relax.op.zeros([4], "int64")), relax.const(1, "int64")
        return builder.emit(ops.index_put(zeros, [places], one, [0], "add"))

    with builder.function("main", [index]):
        with builder.dataflow():
            counts = count(index)
            first = builder.emit(relax.op.strided_slice(counts, [0], [0], [1]))
            size = tvm.tirx.Var("size", "int64")
            read = builder.emit(relax.op.tensor_to_shape(builder.emit(on_host(first))))
            builder.match_cast(read, relax.ShapeType([size]))
            ones = builder.emit(relax.op.ones(relax.ShapeExpr([size]), "int64"))
            total = builder.emit(relax.op.sum(ones))
            again = count(builder.emit(relax.op.subtract(total, index)))
            outputs = builder.emit_output(relax.Tuple([counts, again]))
        builder.emit_func_output(outputs)
    return builder.get()


X = np.arange(8, dtype="float32")


def run(module: tvm.IRModule, arrays: list[Any], device: str) -> Any:
    on = device_of(device)
    machine = relax.VirtualMachine(tvm.compile(module, target_of(device)), on)
    # TVM reads a size from the memory of the host.
    return machine["main"](*(tvm.runtime.tensor(each, on) for each in arrays))


@pytest.mark.parametrize("module", [ReadBehindItsUse, TwoSizes, numbers_of_masks()])
@pytest.mark.parametrize(
    "pipeline", [relax.get_default_pipeline, tvm_scatter.pipeline], ids=["TVM's", "ours"]
)
def test_sizes_are_read_before_their_use(module: tvm.IRModule, pipeline: Any) -> None:
    with H100:
        pipeline(H100)(module)


@pytest.mark.parametrize("name", ["zero", "default_build"])
def test_in_pipelines_by_name(name: str) -> None:
    fused = relax.get_pipeline(name)(ReadBehindItsUse)
    assert relax.analysis.check_well_formed(fused)


def test_two_masks(device: str) -> None:
    result = run(numbers_of_masks(), [X], device)
    np.testing.assert_array_equal(result.numpy(), X * X + 5 + 2)


def test_a_scatter_behind_a_size_waits_for_it(device: str) -> None:
    """It is not computed together with the scatter that the size is read from."""
    index = np.array([0, 1, 0, 2, 3, 0, 3, 1])
    with tvm_scatter.options(batch=True):
        counts, again = run(scatters_around_a_size(), [index], device)
    np.testing.assert_array_equal(counts.numpy(), [3, 2, 1, 2])
    np.testing.assert_array_equal(again.numpy(), [2, 1, 2, 3])


def test_what_is_in_order_is_fused_as_before() -> None:
    @I.ir_module
    class InOrder:
        @R.function
        def main(x: R.Tensor((8,), "float32"), y: R.Tensor(ndim=1, dtype="float32")):
            n = T.int64()
            with R.dataflow():
                square = R.multiply(x, x)
                cast = R.match_cast(y, R.Tensor((n,), "float32"))
                total = R.sum(cast)
                result = R.add(square, total)
                R.output(result)
            return result

    with H100:
        legal = relax.transform.LegalizeOps()(InOrder)
        legal = relax.transform.AnnotateTIROpPattern()(legal)
        fused = relax.transform.FuseOps()(legal)
    functions = [name.name_hint for name in fused.functions if "fused" in name.name_hint]
    assert functions == ["fused_multiply_add"]
