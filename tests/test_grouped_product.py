"""Groups of rows times a matrix each, against one product for each group."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from harness import (
    assert_same,
    compile_all,
    device_of,
    orders,
    relax_function,
    run_compiled,
    target_of,
)
from tvm import relax

from tvm_scatter.errors import ScatterError
from tvm_scatter.ops.grouped_product import grouped_product

#: Rows, inner extent, columns, and where the groups end.
CASES = {
    "more groups than rows": (3, 5, 7, [0, 1, 1, 2, 3]),
    "whole tiles": (64, 64, 128, [32, 64]),
    "beside whole tiles": (70, 33, 90, [1, 1, 40, 70]),
    "rows in no group": (37, 16, 16, [0, 9]),
    "no row in a group": (5, 4, 17, [0, 0]),
    "one row": (1, 40, 66, [0, 1, 1]),
    "no row": (0, 4, 17, [0, 0]),
    "nothing to add up": (3, 0, 17, [1, 2]),
    "many columns": (11, 5, 266, [3, 3, 8]),
    "odd columns": (7, 5, 330, [6]),
    "ends outside": (6, 4, 3, [2, 99]),
}
ODD = slice(1, None, 2)
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 5e-3}


def operands(name: str, dtype: str = "float32", ends_dtype: str = "int64"):
    rows, inner, columns, ends = CASES[name]
    random = np.random.default_rng(0)
    return (
        random.standard_normal((rows, inner)).astype(dtype),
        random.standard_normal((len(ends), inner, columns)).astype(dtype),
        np.array(ends, ends_dtype),
    )


def reference(rows, matrices, ends):
    result = np.zeros((len(rows), matrices.shape[2]), "float64")
    begin = 0
    for matrix, end in zip(matrices, ends, strict=True):
        result[begin:end] = rows[begin:end].astype("float64") @ matrix.astype("float64")
        begin = end
    return result.astype(rows.dtype)


@pytest.mark.turns(3)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_grouped_product(dtype: str, device: str) -> None:
    """All cases in float32; the other types share them, since their code is the same."""
    types = {"float32": "int64", "float64": "int32", "float16": "int32"}
    names = list(CASES)[{"float32": slice(None), "float64": slice(0, None, 2)}.get(dtype, ODD)]
    calls = {
        str(i): (grouped_product, operands(name, dtype, types[dtype]))
        for i, name in enumerate(names)
    }
    machine = compile_all(calls, device)
    for order in orders(device):
        results = run_compiled(machine, calls, device)
        for i, name in enumerate(names):
            right = reference(*calls[str(i)][1])
            assert_same(results[str(i)], right, f"{name}, {order}", TOLERANCE[dtype])


def test_symbolic_rows(device: str) -> None:
    builder = relax.BlockBuilder()
    rows, matrices, ends = operands("beside whole tiles")
    count = tvm.tirx.Var("count", "int64")
    parameters = [
        relax.Var("rows", relax.TensorType([count, rows.shape[1]], "float32")),
        relax.Var("matrices", relax.TensorType(matrices.shape, "float32")),
        relax.Var("ends", relax.TensorType(ends.shape, "int64")),
    ]
    with builder.function("main", parameters):
        with builder.dataflow():
            output = builder.emit_output(grouped_product(*parameters))
        builder.emit_func_output(output)
    on = device_of(device)
    machine = relax.VirtualMachine(tvm.compile(builder.get(), target_of(device)), on)
    for cut in (len(rows), 41):
        given = rows[:cut], matrices, np.minimum(ends, cut)
        result = machine["main"](*(tvm.runtime.tensor(each, on) for each in given)).numpy()
        assert_same(result, reference(*given), f"{cut} rows", 1e-5)


@pytest.mark.parametrize("target", ["c", "llvm"])
def test_the_plain_form(target: str) -> None:
    """Targets of other kinds, and matrices of symbolic sizes."""
    builder = relax.BlockBuilder()
    arrays = operands("rows in no group")
    relax_function(builder, "main", grouped_product, arrays, symbolic=target == "llvm")
    if target == "c":
        with tvm.target.Target("c"):
            text = relax.transform.LegalizeOps()(builder.get()).script()
        assert "parallel" not in text
        return
    machine = relax.VirtualMachine(tvm.compile(builder.get(), target_of(target)), tvm.cpu())
    result = machine["main"](*map(tvm.runtime.tensor, arrays)).numpy()
    assert_same(result, reference(*arrays), "symbolic", 1e-5)


@pytest.mark.parametrize(
    ("shapes", "dtypes", "message"),
    [
        (((2, 3), (2, 4, 5), (2,)), ("float32", "float32", "int64"), "rows of 3 elements"),
        (((2, 3), (2, 3, 5), (3,)), ("float32", "float32", "int64"), "2 matrices for 3 groups"),
        (((2, 3), (3, 5), (3,)), ("float32", "float32", "int64"), "matrices of rank 2"),
        (((2, 3), (2, 3, 5), (2,)), ("float32", "float16", "int64"), "type float16"),
    ],
)
def test_bad_operands(shapes, dtypes, message: str) -> None:
    types = [relax.TensorType(*each) for each in zip(shapes, dtypes, strict=True)]
    with pytest.raises(ScatterError, match=message):
        grouped_product(*(relax.Var(f"p{i}", type_) for i, type_ in enumerate(types)))
