"""Scatters and reads in the branches of a program, which need no memory that stock TVM does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from harness import device_of, target_of
from tvm import relax

import tvm_scatter
from tvm_scatter.ops.operators import index_put, scatter_elements
from tvm_scatter.problem.scatter_problem import BOUNDS

DATA = np.arange(4, dtype="float32")
GOOD, BAD = np.array([1, 1]), np.array([1, 4])
#: What a branch computes of data, indices and a number.
FORMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "put": lambda d, i, u: index_put(d, [i], u, reduction="add"),
    "stock_put": lambda d, i, u: relax.op.index_put(d, [i], u, accumulate=True),
    "elements": lambda d, i, u: scatter_elements(d, i, u, 0, "add"),
    "take": lambda d, i, u: relax.op.take(d, i, 0),
}


def machine(device: str, bounds: str, constant: bool = False) -> relax.VirtualMachine:
    """For each form a function of data, indices and a condition, with the form in each branch."""
    builder = relax.BlockBuilder()
    for name, form in FORMS.items():
        _add(builder, name, form, constant)
    with tvm_scatter.options(bounds=bounds):
        executable = tvm.compile(builder.get(), target_of(device))
    return relax.VirtualMachine(executable, device_of(device))


def _add(builder: relax.BlockBuilder, name: str, form: Any, constant: bool) -> None:
    data = relax.Var("data", relax.TensorType(DATA.shape, "float32"))
    index = relax.Var("index", relax.TensorType(GOOD.shape, "int64"))
    condition = relax.Var("condition", relax.TensorType((), "bool"))
    used = relax.const(GOOD, "int64") if constant else index

    def branch(number: float) -> relax.SeqExpr:
        updates = relax.const(np.full(2, number, "float32"))
        value = builder.normalize(form(data, used, updates))
        result = relax.Var("result", value.ty)
        block = relax.BindingBlock([relax.VarBinding(result, value)])
        return relax.SeqExpr([block], result)

    with builder.function(name, [data, index, condition]):
        builder.emit_func_output(builder.emit(relax.If(condition, branch(7), branch(9))))


def expected(name: str, index: Any, condition: bool) -> Any:
    if name == "take":
        return DATA[index]
    out = DATA.copy()
    np.add.at(out, index, 7 if condition else 9)
    return out


@pytest.mark.turns(2)
@pytest.mark.parametrize("constant", [False, True], ids=["given", "constant"])
@pytest.mark.parametrize("bounds", BOUNDS)
def test_one_in_each_branch(device: str, bounds: str, constant: bool) -> None:
    functions, on = machine(device, bounds, constant), device_of(device)
    for name in FORMS:
        for condition in (True, False, True):
            # Conditions are read on the host.
            arrays = [tvm.runtime.tensor(array, device=on) for array in (DATA, GOOD)]
            result = functions[name](*arrays, tvm.runtime.tensor(np.array(condition)))
            np.testing.assert_array_equal(result.numpy(), expected(name, GOOD, condition))


@pytest.mark.each_device
def test_a_bad_index_in_either_branch(device: str) -> None:
    functions, on = machine(device, "raise"), device_of(device)
    for name in FORMS:
        for condition in (True, False):
            for index in (BAD, GOOD):
                arrays = [tvm.runtime.tensor(array, device=on) for array in (DATA, index)]
                arguments = [*arrays, tvm.runtime.tensor(np.array(condition))]
                if index is BAD:
                    with pytest.raises(IndexError, match=r"index 4 at position \(1\)"):
                        functions[name](*arguments)
                    continue
                result = functions[name](*arguments)
                np.testing.assert_array_equal(result.numpy(), expected(name, GOOD, condition))
