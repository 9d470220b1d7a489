"""Products of many rows in single precision, which get larger tiles on GPUs."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from harness import device_of, target_of
from machine_code import cuda
from tvm import relax

from tvm_scatter.passes.analysis import large_products

ROWS, COLUMNS = 20_000, 128


def module(rows, columns, inner, dtype="float32", transposed=True, follows=True, batch=()):
    """A product, and perhaps a bias and a rectifier behind it; ``None`` is a symbolic number."""
    rows = tvm.tirx.Var("n", "int64") if rows is None else rows
    builder = relax.BlockBuilder()
    left = relax.Var("left", relax.TensorType([*batch, rows, inner], dtype))
    shape = [columns, inner] if transposed else [inner, columns]
    right = relax.Var("right", relax.TensorType(shape, dtype))
    bias = relax.Var("bias", relax.TensorType([columns], dtype))
    with builder.function("main", [left, right, bias]):
        with builder.dataflow():
            taken = builder.emit(relax.op.permute_dims(right)) if transposed else right
            found = builder.emit(relax.op.matmul(left, taken))
            if follows:
                found = builder.emit(relax.op.nn.relu(builder.emit(relax.op.add(found, bias))))
            output = builder.emit_output(found)
        builder.emit_func_output(output)
    return builder.get()


def is_tiled(mod, **options):
    """Whether a tile has 128 columns: 16 numbers of each, and two that keep banks apart."""
    return "shared_ptr[2304]" in cuda(mod, **options)


@pytest.mark.turns(4)
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    ("rows", "columns", "inner", "transposed", "follows", "batch"),
    [
        (2, 128, 2, True, True, ()),
        (33, 128, 16, False, False, ()),
        (70, 256, 33, True, True, ()),
        (31, 128, 7, False, True, (3,)),
    ],
)
def test_any_rows_and_any_inner_size(
    monkeypatch, rows, columns, inner, transposed, follows, batch, symbolic
):
    monkeypatch.setattr(large_products, "_ENOUGH", 1)
    given = None if symbolic else rows
    mod = module(given, columns, inner, "float32", transposed, follows, batch)
    assert is_tiled(mod)
    executable = tvm.compile(mod, target_of("cuda"))
    random = np.random.default_rng(rows)
    left = random.standard_normal((*batch, rows, inner)).astype("float32")
    right = random.standard_normal((columns, inner) if transposed else (inner, columns))
    bias = random.standard_normal(columns).astype("float32")
    arrays = (left, right.astype("float32"), bias)
    on = device_of("cuda")
    machine = relax.VirtualMachine(executable, on)
    found = machine["main"](*(tvm.runtime.tensor(each, on) for each in arrays)).numpy()
    wanted = left.astype("float64") @ (arrays[1].T if transposed else arrays[1])
    if follows:
        wanted = np.maximum(wanted + bias, 0)
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-4)


def test_which_are():
    assert is_tiled(module(ROWS, COLUMNS, 64))
    assert is_tiled(module(None, COLUMNS, 64))
    assert not is_tiled(module(1000, COLUMNS, 64)), "too few tiles for a GPU"
    assert not is_tiled(module(ROWS, 64, 64)), "half a tile"
    assert not is_tiled(module(ROWS, COLUMNS, 64, "float16")), "other units multiply these"
    assert not is_tiled(module(ROWS, COLUMNS, 64), products=False)
