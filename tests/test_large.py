"""Tensors of more than 2^31 elements, and one artifact for every number of updates, on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import tvm_scatter
from tvm_scatter.ops.operators import index_put

pytestmark = pytest.mark.gpu

_EXTENT = (1 << 31) + 4096


def _compile(data_shape, update_shape, dtype, **options):
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType(data_shape, dtype))
    index = relax.Var("index", relax.TensorType(update_shape[:1], "int64"))
    updates = relax.Var("updates", relax.TensorType(update_shape, dtype))
    with builder.function("main", [data, index, updates]):
        with builder.dataflow():
            call = index_put(data, [index], updates, reduction="add")
            result = builder.emit_output(builder.emit(call))
        builder.emit_func_output(result)
    with tvm_scatter.options(**options):
        executable = tvm.compile(builder.get(), target=tvm.target.Target.from_device(tvm.cuda(0)))
    return relax.VirtualMachine(executable, tvm.cuda(0))["main"]


@pytest.mark.parametrize("forced", ["parallel_injective", "sort_based", "sequential"])
def test_more_elements_than_32_bits_count(forced: str) -> None:
    torch = pytest.importorskip("torch")
    places = [0, 1, (1 << 31) - 1, 1 << 31, _EXTENT - 1, _EXTENT - 1, _EXTENT]
    run = _compile((_EXTENT,), (len(places),), "int8", implementation=forced)
    data = torch.zeros(_EXTENT, dtype=torch.int8, device="cuda")
    index = torch.tensor(places, device="cuda")
    updates = torch.arange(1, 8, dtype=torch.int8, device="cuda")
    result = torch.from_dlpack(run(*map(tvm.runtime.from_dlpack, (data, index, updates))))
    # The last index is out of bounds and dropped; two updates meet in the last element.
    touched = result[index[:-1]].tolist()
    assert touched == [1, 2, 3, 4, 11, 11]
    assert int(result.sum(dtype=torch.int64)) == 1 + 2 + 3 + 4 + 11


def test_one_artifact_for_one_and_for_ten_million_updates() -> None:
    torch = pytest.importorskip("torch")
    run = _compile((1000, 4), (tirx.Var("n", "int64"), 4), "float32")
    for count in (1, 33, 5000, 10_000_000):
        data = torch.ones((1000, 4), device="cuda")
        index = torch.randint(0, 1000, (count,), device="cuda")
        updates = torch.ones((count, 4), device="cuda")
        result = run(*map(tvm.runtime.from_dlpack, (data, index, updates)))
        expected = torch.bincount(index, minlength=1000)[:, None].expand(1000, 4) + 1
        assert np.array_equal(result.numpy(), expected.cpu().numpy().astype("float32")), count
