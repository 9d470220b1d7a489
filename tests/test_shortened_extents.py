"""Extents that are a size less a number: TVM compares an index plus that number with the size.

The greatest indices of all plus a number overflow, and would be in bounds.
"""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from harness import device_of, target_of
from tvm import relax, tirx

import tvm_scatter
from tvm_scatter.ops.operators import index_put

#: Extents of a size, and what they are where the size is 9.
EXTENTS = {
    "n - 1": (lambda n: n - 1, 8),
    "n - 5": (lambda n: n - 5, 4),
    "2 n - 1": (lambda n: 2 * n - 1, 17),
    "n + 1": (lambda n: n + 1, 10),
}
READS = {
    "take": lambda x, index: relax.op.take(x, index, axis=0),
    "gather_nd": lambda x, index: relax.op.gather_nd(x, relax.op.expand_dims(index, 1)),
    "index_tensor": lambda x, index: relax.op.index_tensor(x, [index]),
}
WIDTH = 3


def module(extent, dtype, read, scatters):
    """Rows of x by an index, and perhaps their sum by place; its parameter ``like`` has size n."""
    n, count = tirx.Var("n", "int64"), tirx.Var("count", "int64")
    builder = relax.BlockBuilder()
    like = relax.Var("like", relax.TensorType([n], "int8"))
    x = relax.Var("x", relax.TensorType([EXTENTS[extent][0](n), WIDTH], "float32"))
    index = relax.Var("index", relax.TensorType([count], dtype))
    places = relax.Var("places", relax.TensorType([count], "int64"))
    with builder.function("main", [like, x, index, places]):
        with builder.dataflow():
            rows = builder.emit(READS[read](x, index))
            if scatters:
                zeros = builder.emit(relax.op.zeros(relax.ShapeExpr([n, WIDTH]), "float32"))
                doubled = builder.emit(relax.op.add(rows, rows))
                rows = index_put(zeros, [places], doubled, [0], "add")
            output = builder.emit_output(rows)
        builder.emit_func_output(output)
    return builder.get()


@pytest.mark.turns(6)
@pytest.mark.parametrize("scatters", [False, True], ids=["read", "scatter"])
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("dtype", ["int64", "uint64"])
@pytest.mark.parametrize(
    "extent",
    ["n - 1", "2 n - 1"]
    + [pytest.param(e, marks=pytest.mark.exhaustive) for e in ("n - 5", "n + 1")],
)
def test_the_greatest_indices_read_zero(device, extent, dtype, read, scatters):
    if dtype == "uint64" and read != "take":
        pytest.skip("TVM's operator takes signed indices only")
    rows = EXTENTS[extent][1]
    most = np.iinfo(np.int64).max
    index = np.array([most, rows - 1, most - 1, most - 4, 0, rows, most - rows], dtype)
    x = np.arange(1, rows * WIDTH + 1, dtype="float32").reshape(rows, WIDTH)
    places = np.arange(len(index)) % 2
    with tvm_scatter.options(bounds="drop"):
        executable = tvm.compile(module(extent, dtype, read, scatters), target_of(device))
    on = device_of(device)
    given = [tvm.runtime.tensor(each, on) for each in (np.zeros(9, "int8"), x, index, places)]
    found = relax.VirtualMachine(executable, on)["main"](*given).numpy()
    wanted = np.zeros((len(index), WIDTH), "float32")
    wanted[1], wanted[4] = x[rows - 1], x[0]
    if scatters:
        updates, wanted = 2 * wanted, np.zeros((9, WIDTH), "float32")
        np.add.at(wanted, places, updates)
    np.testing.assert_array_equal(found, wanted)


def test_the_greatest_offset_is_too_large():
    torch = pytest.importorskip("torch")
    from tvm.relax.frontend.torch import from_exported_program

    class Bags(torch.nn.Module):
        def forward(self, table, tokens, starts):
            return torch.nn.functional.embedding_bag(tokens[3:], table, starts, mode="sum")

    example = (torch.ones(4, 3), torch.arange(7) % 4, torch.tensor([0, 2]))
    dynamic = {"table": None, "tokens": {0: torch.export.Dim("n", min=6)}, "starts": None}
    program = torch.export.export(Bags(), example, dynamic_shapes=dynamic)
    executable = tvm.compile(from_exported_program(program), target_of("llvm"))
    main = relax.VirtualMachine(executable, device_of("llvm"))["main"]
    for last in (5, 2**63 - 1, 2**63 - 4):
        arrays = (*(each.numpy() for each in example[:2]), np.array([0, last]))
        with pytest.raises(ValueError, match=r"the last offset is .* it must be at most 4"):
            main(*map(tvm.runtime.tensor, arrays))
