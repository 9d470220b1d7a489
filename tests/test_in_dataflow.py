"""Models that assert something, or have a branch, are fused like others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import tvm
from cuda_cases import cuda_target
from torch_harness import check, compile_for, export, run
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

import tvm_scatter
from tvm_scatter.ops.operators import index_put
from tvm_scatter.passes import InDataflow

Tensor = torch.Tensor


def counted(kind: Tensor, x: Tensor) -> Tensor:
    """PyTorch asserts on a CPU that no kind is negative, and none too large."""
    one_hot = torch.nn.functional.one_hot(kind, 4).float()
    return torch.zeros(4, 3).index_add(0, kind, torch.relu(x[kind]) * 2) + one_hot.T @ x


KINDS, X = torch.tensor([3, 1, 1, 0]), torch.arange(12.0).reshape(4, 3) - 5


def branched(x: Tensor, index: Tensor) -> Tensor:
    def up(x: Tensor) -> Tensor:
        return torch.zeros(4, 3).index_add(0, index, torch.tanh(x[index]) * 2)

    chosen = torch.cond(x.sum() > 0, lambda x: x * 3, lambda x: x - 1, (x,))
    return up(chosen) + up(x)


def test_results(device: str) -> None:
    check(counted, KINDS, X, device=device)
    for sign in (1, -1):
        check(branched, X * sign, KINDS, device=device)


def test_what_is_asserted_is_checked() -> None:
    machine = compile_for(from_exported_program(export(counted, (KINDS, X))))
    with pytest.raises(RuntimeError, match="one_hot: Class values must be smaller"):
        run(machine, (torch.tensor([3, 4, 1, 0]), X))


@pytest.mark.parametrize("function, inputs", [(counted, (KINDS, X)), (branched, (X, KINDS))])
def test_a_scatter_computes_its_updates(function: Any, inputs: Any) -> None:
    module = from_exported_program(export(function, inputs))
    assert "computes its updates itself" in str(tvm_scatter.explain(module, cuda_target("sm_90")))


def test_what_overwrites_stays_where_it_is() -> None:
    """TVM might move a write to behind what reads it, or leave it out."""
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType([4, 3], "float32"))
    index = relax.Var("index", relax.TensorType([2], "int64"))
    with builder.function("main", [data, index]):
        updates = builder.emit(relax.op.ones([2, 3], "float32"))
        builder.emit(relax.op.negative(updates))
        builder.emit(index_put(data, [index], updates, [0], "add", in_place=True))
        builder.emit_func_output(builder.emit(relax.op.exp(data)))
    module = builder.get()
    tvm.ir.assert_structural_equal(InDataflow()(module), module)


def test_a_shape_that_is_only_checked_stays_checked() -> None:
    """TVM would leave the check out, since nothing reads what it gives."""
    builder = relax.BlockBuilder()
    rows, columns = (tvm.tirx.Var(name, "int64") for name in ("rows", "columns"))
    x = relax.Var("x", relax.TensorType([rows, columns], "float32"))
    y = relax.Var("y", relax.TensorType(None, "float32", None, 2))
    with builder.function("main", [x, y]):
        builder.match_cast(y, relax.TensorType([rows, columns], "float32"))
        squared = builder.emit(relax.op.multiply(x, x))
        builder.emit_func_output(builder.emit(relax.op.exp(squared)))
    machine = compile_for(builder.get())
    ones = torch.ones(4, 3), torch.ones(5, 3)
    run(machine, (ones[0], ones[0]))
    with pytest.raises((RuntimeError, ValueError), match="5"):
        run(machine, ones)
