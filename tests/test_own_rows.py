"""Who writes a row reads once what is the same for all of its updates."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from harness import called, compiled_with, target_of
from machine_code import cuda
from softmax_programs import Attention, emit_attention
from tvm import relax

import tvm_scatter
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
@pytest.mark.turns(2)
def test_own_rows_are_read_once(device: str, chosen: str) -> None:
    if device == "llvm":
        pytest.skip("CPUs have neither implementation")
    for width, dtype in ((8, "float32"), (7, "float32"), (12, "float16"), (1, "float64")):
        module, arrays = differences(width, dtype), operands(width, dtype)
        options = {"implementation": chosen, "fuse": True, "bounds": "drop"}
        machine = compiled_with(module, device, **options)
        np.testing.assert_array_equal(called(machine, device, arrays), expected(*arrays))


@pytest.mark.turns(4)
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


def attention(nodes: int, rows: int, wraps: bool) -> tvm.IRModule:
    """The softmax of a sum of a source's and a destination's number, which has ``rows``."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([NODES, 2, 16], "float32"))
    own, other = (
        relax.Var(name, relax.TensorType([size, 2], "float32"))
        for name, size in (("own", rows), ("other", NODES))
    )
    src, dst = (relax.Var(name, relax.TensorType([EDGES], "int64")) for name in ("src", "dst"))
    kind = Attention(edges=EDGES, columns=(16,), wraps=wraps)
    mode = "fast" if wraps else "index_select"
    with builder.function("main", [x, own, other, src, dst]):
        with builder.dataflow():
            emit, op = builder.emit, relax.op
            logits = emit(
                op.add(emit(op.take(other, src, 0)), emit(op.take(own, dst, 0, mode=mode)))
            )
            values = emit(op.take(x, src, 0))
            output = builder.emit_output(emit_attention(kind, builder, logits, values, dst, nodes))
        builder.emit_func_output(output)
    return builder.get()


@pytest.mark.turns(4)
@pytest.mark.parametrize("rows", [NODES, NODES + 3, NODES - 2])
@pytest.mark.parametrize("wraps", [False, True])
def test_logits_of_the_destination(device: str, rows: int, wraps: bool) -> None:
    """As many rows as there are destinations, more, or no more than are named.

    A destination counted from the end is another row where there are more rows.
    """
    random = np.random.default_rng(rows)
    x, own, other = (
        random.standard_normal(shape).astype("float32")
        for shape in ((NODES, 2, 16), (rows, 2), (NODES, 2))
    )
    src, dst = random.integers(0, NODES, EDGES), random.integers(0, NODES - 2, EDGES)
    names = (
        np.where(random.random(EDGES) < 0.4, dst - rows, dst) if wraps and rows == NODES else dst
    )
    module, options = attention(NODES, rows, wraps), {"fuse": True, "bounds": "drop"}
    with tvm_scatter.options(**options):
        [explanation] = tvm_scatter.explain(module, target_of(device))
    assert explanation.problem.softmax
    found = called(compiled_with(module, device, **options), device, [x, own, other, src, names])
    kind = Attention(nodes=NODES, edges=EDGES, columns=(16,))
    wanted = kind.expected([other[src] + own[dst], x[src], dst])
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-5)
