"""Who writes a row reads once what is the same for all of its updates."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from harness import called, compiled_with
from machine_code import cuda
from tvm import relax

from tvm_scatter.ops.operators import index_put

NODES, EDGES = 9, 40


def differences(width: int, dtype: str = "float32") -> tvm.IRModule:
    """The greatest of relu(x_i - x_j), and of what the node itself has, over the edges of each."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([NODES, width], dtype))
    src, dst = (relax.Var(name, relax.TensorType([EDGES], "int64")) for name in ("src", "dst"))
    with builder.function("main", [x, src, dst]):
        with builder.dataflow():
            own, other = (builder.emit(relax.op.take(x, each, axis=0)) for each in (dst, src))
            message = builder.emit(relax.op.nn.relu(builder.emit(relax.op.subtract(own, other))))
            zeros = builder.emit(relax.op.zeros([NODES, width], dtype))
            call = index_put(zeros, [dst], message, [0], "max", include_self=False)
            output = builder.emit_output(call)
        builder.emit_func_output(output)
    return builder.get()


def operands(width: int, dtype: str = "float32") -> list[np.ndarray]:
    random = np.random.default_rng(width)
    x = random.integers(-50, 50, [NODES, width]).astype(dtype)
    return [x, random.integers(0, NODES, EDGES), random.integers(0, NODES - 2, EDGES)]


def expected(x: np.ndarray, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    result = np.zeros_like(x)
    for place in range(NODES):
        edges = src[dst == place]
        if len(edges):
            result[place] = np.maximum(x[place] - x[edges], 0).max(axis=0)
    return result


@pytest.mark.parametrize("chosen", ["bucketed", "grouped"])
def test_own_rows_are_read_once(device: str, chosen: str) -> None:
    if device == "llvm":
        pytest.skip("CPUs have neither implementation")
    for width, dtype in ((8, "float32"), (7, "float32"), (12, "float16"), (1, "float64")):
        module, arrays = differences(width, dtype), operands(width, dtype)
        options = {"implementation": chosen, "fuse": True, "bounds": "drop"}
        machine = compiled_with(module, device, **options)
        np.testing.assert_array_equal(called(machine, device, arrays), expected(*arrays))


def test_the_kernel_has_them() -> None:
    source = cuda(differences(8), implementation="bucketed", fuse=True)
    assert "Own<count> own(long long place" in source
    assert source.count("struct OwnedUpdates_") == 1
