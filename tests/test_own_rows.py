"""Who writes a row reads once what is the same for all of its updates."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from harness import called, compiled_with
from machine_code import cuda
from tvm import relax

from tvm_scatter.ops.operators import index_put

NODES, EDGES = 9, 40
#: One node's edges are summed in chunks from so many on, and a bucket of nodes is cut into units.
CHUNKED, IN_UNITS = 400, 6000


def differences(width: int, dtype: str = "float32", edges: int = EDGES) -> tvm.IRModule:
    """The greatest of relu(x_i - x_j), and of what the node itself has, over the edges of each."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([NODES, width], dtype))
    src, dst = (relax.Var(name, relax.TensorType([edges], "int64")) for name in ("src", "dst"))
    with builder.function("main", [x, src, dst]):
        with builder.dataflow():
            own, other = (builder.emit(relax.op.take(x, each, axis=0)) for each in (dst, src))
            message = builder.emit(relax.op.nn.relu(builder.emit(relax.op.subtract(own, other))))
            zeros = builder.emit(relax.op.zeros([NODES, width], dtype))
            call = index_put(zeros, [dst], message, [0], "max", include_self=False)
            output = builder.emit_output(call)
        builder.emit_func_output(output)
    return builder.get()


def operands(width: int, dtype: str = "float32", edges: int = EDGES) -> list[np.ndarray]:
    random = np.random.default_rng(width)
    x = random.integers(-50, 50, [NODES, width]).astype(dtype)
    # Most edges go to few nodes, and some nodes have none.
    places = np.minimum(random.geometric(0.4, edges) - 1, NODES - 2)
    return [x, random.integers(0, NODES, edges), random.permuted(places)]


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


@pytest.mark.parametrize("chosen", ["bucketed", "grouped"])
@pytest.mark.parametrize("edges", [CHUNKED, IN_UNITS])
@pytest.mark.parametrize(("width", "dtype"), [(8, "float32"), (7, "float32"), (12, "float16")])
def test_parts_of_long_lists(device: str, chosen: str, edges: int, width: int, dtype: str) -> None:
    if device == "llvm":
        pytest.skip("CPUs have neither implementation")
    module, arrays = differences(width, dtype, edges), operands(width, dtype, edges)
    options = {"implementation": chosen, "fuse": True, "bounds": "drop"}
    machine = compiled_with(module, device, **options)
    np.testing.assert_array_equal(called(machine, device, arrays), expected(*arrays))


def test_the_kernels_have_them() -> None:
    source = cuda(differences(8), implementation="bucketed", fuse=True)
    assert "Own<count> own(long long place" in source
    # Those that make the lists, one that sums parts of long ones, and one that writes rows.
    found = re.findall(r"struct (OwnedUpdates_\w+) {", source)
    assert len(found) == 4
    assert len(set(found)) == 1


def test_parts_of_long_lists_are_read_first() -> None:
    source = cuda(differences(8), implementation="bucketed", fuse=True)
    assert "reads_first = 8 % count == 0" in source
    assert "Read<count, Offset> fetch(" in source
