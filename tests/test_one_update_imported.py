"""One update through the importers: the only index of each operator is checked on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_harness import compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

EXTENT = 5
BAD = (EXTENT, -EXTENT - 1, 2**31, 2**40, 2**63 - 1, -(2**63))
DATA = torch.zeros(EXTENT, 3)
ROW, POINT = torch.ones(1, 3), torch.ones(1)
TORCH: dict[str, tuple[Callable[..., Any], tuple[int, ...], Any]] = {
    "scatter": (lambda d, i, u: d.scatter(0, i, u), (1, 1), ROW),
    "scatter_value": (lambda d, i, u: d.scatter(0, i, 2.0) + u, (1, 1), ROW),
    "scatter_add": (lambda d, i, u: d.scatter_add(0, i, u), (1, 3), ROW),
    "scatter_reduce": (lambda d, i, u: d.scatter_reduce(0, i, u, "amax"), (1, 1), ROW),
    "index_put": (lambda d, i, u: d.index_put((i,), u), (1,), ROW),
    "index_put_pair": (lambda d, i, u: d.index_put((i, i % 3), u), (1,), POINT),
    "index_copy": (lambda d, i, u: d.index_copy(0, i, u), (1,), ROW),
    "index_add": (lambda d, i, u: d.index_add(0, i, u), (1,), ROW),
    "index_fill": (lambda d, i, u: d.index_fill(0, i, 3.0) + u, (1,), ROW),
}


@pytest.mark.parametrize("name", TORCH)
def test_torch(name: str) -> None:
    function, shape, updates = TORCH[name]
    good = torch.full(shape, EXTENT - 1)
    machine = compile_for(from_exported_program(export(function, (DATA, good, updates))))
    (result,) = run(machine, (DATA, good, updates))
    torch.testing.assert_close(result, function(DATA, good, updates))
    for value in BAD:
        with pytest.raises(IndexError, match=rf"index {value} at"):
            run(machine, (DATA, torch.full(shape, value), updates))


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("operator", ["ScatterElements", "ScatterND"])
def test_onnx(operator: str, dtype: str) -> None:
    pytest.importorskip("onnx")
    from test_onnx_import import model_of
    from test_onnx_import import run as run_model

    if operator == "ScatterND" and dtype == "int32":
        pytest.skip("ONNX has it with int64 only")
    data = np.zeros((EXTENT, 3), "float32")
    updates = np.ones((1, 1) if operator == "ScatterElements" else (1, 3), "float32")
    inputs = {"data": data, "indices": np.zeros((1, 1), dtype), "updates": updates}
    model = model_of(operator, 18, inputs, data)
    for value in (EXTENT, -EXTENT - 1, 2**31 - 1):
        with pytest.raises(IndexError, match=rf"index {value} at"):
            run_model(model, [data, np.full((1, 1), value, dtype), updates])
