"""Which segments are cut: those beyond three times the mean, where there is work for all."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from harness import device_of, orders, target_of
from tvm import relax

import tvm_scatter
from tvm_scatter.ops.operators import index_put
from tvm_scatter.strategies.cuda.steps import listed_rows

#: Updates of each place: some lie beside a chunk's 64, three times the mean, and 256.
COUNTS = (0, 1, 63, 64, 65, 127, 128, 129, *range(180, 196), 255, 256, 257, 700, *[0] * 53)
WIDTH = 4


@pytest.mark.parametrize("form", ["segmented", "ordered"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("threads", [1, 1 << 17], ids=["much", "little"])
def test_segments_of_all_lengths(monkeypatch, form, dtype, threads):
    monkeypatch.setattr(listed_rows, "CHUNK_THREADS", threads)
    generator = np.random.default_rng(0)
    index = generator.permutation(np.repeat(np.arange(len(COUNTS)), COUNTS))
    assert 180 < 3 * len(index) // len(COUNTS) < 195
    updates = generator.integers(-2, 3, (len(index), WIDTH)).astype(dtype)
    builder = relax.BlockBuilder()
    given = [
        relax.Var("index", relax.TensorType(index.shape, "int64")),
        relax.Var("updates", relax.TensorType(updates.shape, dtype)),
    ]
    with builder.function("main", given):
        with builder.dataflow():
            ordering = None
            if form == "ordered":
                ordering = builder.emit(tvm_scatter.order(given[0], len(COUNTS)))
            zeros = builder.emit(relax.op.zeros([len(COUNTS), WIDTH], dtype))
            summed = index_put(zeros, [given[0]], given[1], [0], "add", ordering=ordering)
            output = builder.emit_output(summed)
        builder.emit_func_output(output)
    with tvm_scatter.options(implementation=form):
        executable = tvm.compile(builder.get(), target_of("cuda"))
    on = device_of("cuda")
    machine = relax.VirtualMachine(executable, on)
    wanted = np.zeros((len(COUNTS), WIDTH), "float64")
    np.add.at(wanted, index, updates)
    for _ in orders("cuda"):
        arrays = [tvm.runtime.tensor(each, on) for each in (index, updates)]
        np.testing.assert_array_equal(machine["main"](*arrays).numpy(), wanted)
