"""Updates that are meant to be left out where their index is out of bounds, among others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from harness import device_of, target_of
from tvm import relax

import tvm_scatter
from tvm_scatter.ops.operators import index_put, scatter_nd
from tvm_scatter.options import current_options
from tvm_scatter.passes import passes

DATA = np.zeros((4, 2), "float32")
INDEX = np.array([0, 4, -1, 3, 0])
ROWS = np.arange(10, dtype="float32").reshape(5, 2)
#: By eye: rows 0 and 4 go to 0, row 3 to 3; the others have no place.
SUMS = [[8, 10], [0, 0], [0, 0], [6, 7]]


def module(build: Any, **arrays: Any) -> tvm.IRModule:
    """A function of arrays, whose results ``build`` makes with a function that emits."""
    builder = relax.BlockBuilder()
    given = [
        relax.Var(name, relax.TensorType(array.shape, str(array.dtype)))
        for name, array in arrays.items()
    ]
    with builder.function("main", given):
        with builder.dataflow():
            results = build(builder.emit, *given)
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    return builder.get()


def run(mod: tvm.IRModule, device: str, arrays: Any, **options: Any) -> list[Any]:
    with tvm_scatter.options(**options):
        executable = tvm.compile(mod, target_of(device))
    on = device_of(device)
    machine = relax.VirtualMachine(executable, on)
    results = machine["main"](*(tvm.runtime.tensor(array, on) for array in arrays))
    return [result.numpy() for result in results]


def added(data: Any, index: Any, rows: Any, **more: Any) -> Any:
    return index_put(data, [index], rows, [0], "add", wrap_negative=False, **more)


@pytest.mark.parametrize("share_order", [False, True])
def test_several_by_one_index(device: str, share_order: bool) -> None:
    """What is shared by both, an order or a check, must not report what is meant."""

    def build(emit: Any, data: Any, index: Any, rows: Any) -> Any:
        index = emit(relax.op.add(index, relax.const(0, "int64")))
        twice = emit(relax.op.multiply(rows, relax.const(2.0)))
        return [emit(added(data, index, each, leaves_out=True)) for each in (rows, twice)]

    mod = module(build, data=DATA, index=INDEX, rows=ROWS)
    options = {"bounds": "raise", "share_order": share_order, "implementation": None}
    once, twice = run(mod, device, (DATA, INDEX, ROWS), **options)
    assert once.tolist() == SUMS and twice.tolist() == (2 * np.array(SUMS)).tolist()


def test_beside_one_that_reports(device: str) -> None:
    """A scatter by the same index that leaves nothing out still reports a bad one."""

    def build(emit: Any, data: Any, index: Any, rows: Any) -> Any:
        return [emit(added(data, index, rows, leaves_out=each)) for each in (True, False)]

    mod = module(build, data=DATA, index=INDEX, rows=ROWS)
    with pytest.raises(IndexError, match="index 4 at position"):
        run(mod, device, (DATA, INDEX, ROWS), bounds="raise")


def test_a_mean_by_a_count_that_reports(device: str) -> None:
    """The count is not part of a mean whose sum leaves out what it must report."""

    def build(emit: Any, data: Any, index: Any, rows: Any) -> Any:
        total = emit(added(data, index, rows, leaves_out=True))
        none = emit(relax.op.zeros((4,), "float32"))
        count = emit(added(none, index, relax.const(1.0)))
        least = emit(relax.op.maximum(count, relax.const(1.0)))
        return [emit(relax.op.divide(total, emit(relax.op.expand_dims(least, 1))))]

    mod = module(build, data=DATA, index=INDEX, rows=ROWS)
    with pytest.raises(IndexError, match="index 4 at position"):
        run(mod, device, (DATA, INDEX, ROWS), bounds="raise")


@pytest.mark.parametrize("form", ["rows", "elements", "tuples"])
def test_by_operators_of_tvm(form: str) -> None:
    """A target without a strategy: TVM's operator gets one row more, for what is left out."""
    columns = np.array([0, 1, 1, 2, 1])
    arrays = {"data": DATA, "index": INDEX, "columns": columns, "rows": ROWS}
    if form != "rows":
        arrays["rows"] = ROWS[:, 0].copy()

    def build(emit: Any, data: Any, index: Any, columns: Any, rows: Any) -> Any:
        if form == "rows":
            return [emit(added(data, index, rows, leaves_out=True))]
        if form == "elements":
            return [emit(index_put(data, [index, columns], rows, None, "add", leaves_out=True))]
        tuples = emit(relax.op.stack([index, columns], 1))
        return [emit(scatter_nd(data, tuples, rows, "add", leaves_out=True))]

    mod = module(build, **arrays)
    with tvm.target.Target("c"):
        mod = tvm.transform.Sequential(passes(current_options()))(mod)
        mod = relax.transform.LegalizeOps()(mod)
    [result] = run(mod, "llvm", arrays.values())
    if form == "rows":
        assert result.tolist() == SUMS
    else:
        # -1 is the last row here; 2 of the fourth pair is no column.
        assert result.tolist() == [[0, 8], [0, 0], [0, 0], [0, 4]]
