"""Which segments are cut, and how: those beyond three times the mean, if there is work for all."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from harness import device_of, orders, target_of
from tvm import relax

import tvm_scatter
from tvm_scatter.ops.operators import index_put
from tvm_scatter.strategies.cuda.steps import listed_rows, segments

#: Updates of each place: some lie beside two pieces, of 64, three times the mean, and 256.
COUNTS = (0, 1, 63, 64, 65, 127, 128, 129, *range(180, 196), 255, 256, 257, 700, *[0] * 53)
#: Some lie beside two times 32 pieces, of 64 or 128, whose sums are added up together.
MANY = (4095, 1, 4096, 0, 4097, 65, 6208, 8191, 8192, 8193, 2, 16384)
WIDTH = 4


def result(form, counts, dtype):
    """The sums of updates of so many to each place, by an implementation, and what is right."""
    generator = np.random.default_rng(0)
    index = generator.permutation(np.repeat(np.arange(len(counts)), counts))
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
                ordering = builder.emit(tvm_scatter.order(given[0], len(counts)))
            zeros = builder.emit(relax.op.zeros([len(counts), WIDTH], dtype))
            summed = index_put(zeros, [given[0]], given[1], [0], "add", ordering=ordering)
            output = builder.emit_output(summed)
        builder.emit_func_output(output)
    with tvm_scatter.options(implementation=form):
        executable = tvm.compile(builder.get(), target_of("cuda"))
    on = device_of("cuda")
    machine = relax.VirtualMachine(executable, on)
    wanted = np.zeros((len(counts), WIDTH), "float64")
    np.add.at(wanted, index, updates)
    for _ in orders("cuda"):
        arrays = [tvm.runtime.tensor(each, on) for each in (index, updates)]
        yield machine["main"](*arrays).numpy(), wanted


@pytest.mark.turns(4)
@pytest.mark.parametrize("form", ["segmented", "ordered"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("threads", [1, 1 << 17], ids=["much", "little"])
def test_segments_of_all_lengths(monkeypatch, form, dtype, threads):
    monkeypatch.setattr(listed_rows, "CHUNK_THREADS", threads)
    assert 180 < 3 * sum(COUNTS) // len(COUNTS) < 195
    for found, wanted in result(form, COUNTS, dtype):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("form", ["segmented", "ordered"])
@pytest.mark.turns(2)
def test_long_segments_among_many_rows(form):
    counts = np.random.default_rng(2).choice(
        [0, 1, 3, 200, 300], 700, p=[0.5, 0.3, 0.1, 0.05, 0.05]
    )
    for found, wanted in result(form, counts, "float32"):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("form", ["segmented", "ordered"])
@pytest.mark.turns(2)
def test_sums_that_are_added_up_three_times(form):
    """The first row has more than two times 32 times 32 pieces."""
    for found, wanted in result(form, (140_000, 3, 4200), "float32"):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.turns(4)
@pytest.mark.parametrize("form", ["segmented", "ordered"])
@pytest.mark.parametrize("many", [0, 1 << 21], ids=["large pieces", "small pieces"])
def test_pieces_that_are_added_up_together(monkeypatch, form, many):
    monkeypatch.setattr(segments, "_MANY", many)
    for found, wanted in result(form, MANY, "float32"):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.turns(4)
@pytest.mark.parametrize("form", ["segmented", "ordered"])
@pytest.mark.parametrize("rows", [1, 3, 5, 703])
def test_groups_that_have_several_rows(monkeypatch, form, rows):
    """Long ones and empty ones among them, and fewer in the last group."""
    monkeypatch.setattr(segments, "_ENOUGH_THREADS", 1)
    counts = np.random.default_rng(3).choice([0, 1, 2, 5, 80], rows, p=[0.4, 0.2, 0.3, 0.09, 0.01])
    for found, wanted in result(form, counts, "float32"):
        np.testing.assert_array_equal(found, wanted)
