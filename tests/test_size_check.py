"""Symbolic sizes that turn out not to fit each other: one clear error, under every policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from harness import device_of, target_of
from tvm import relax

import tvm_scatter
from tvm_scatter.ops.expectations import expect_sizes
from tvm_scatter.ops.operators import scatter_elements
from tvm_scatter.problem.scatter_problem import BOUNDS

Shape = tuple[int | str, ...]


def ours(data: Any, index: Any, updates: Any, axis: int) -> Any:
    return scatter_elements(data, index, updates, axis, wrap_negative=True)


def stock(data: Any, index: Any, updates: Any, axis: int) -> Any:
    return relax.op.scatter_elements(data, index, updates, axis)


def rows(data: Any, index: Any, updates: Any, axis: int) -> Any:
    """One index per row, broadcast to the columns, as PyTorch Geometric writes it."""
    (count,), (_, width) = index.ty.shape, data.ty.shape
    box = relax.op.broadcast_to(relax.op.reshape(index, [count, 1]), [count, width])
    return scatter_elements(data, box, updates, axis, wrap_negative=True)


#: What is built, the shapes of data, index and updates, and the axis.
FORMS: dict[str, tuple[Callable[..., Any], tuple[Shape, Shape, Shape], int]] = {
    "ours_count": (ours, ((4, 3), ("m", 3), ("n", 3)), 0),
    "stock_count": (stock, ((4, 3), ("m", 3), ("n", 3)), 0),
    "rows_count": (rows, ((4, 3), ("m",), ("n", 3)), 0),
    "ours_line": (ours, ((4, 9), (4, "k"), (4, "j")), 1),
    "stock_line": (stock, ((4, 9), (4, "k"), (4, "j")), 1),
    "off_axis": (ours, (("a", 5), ("b", 5), ("b", 5)), 1),
    "static_index": (ours, ((4, "a"), (2, 3), (2, "j")), 0),
    "scalar": (ours, ((4, "a"), (2, "k"), ()), 0),
}
_FEW = ("stock_count", "ours_line", "scalar")
#: For each form: sizes that fit, and sizes that do not with what is said of them.
FIT: dict[str, list[dict[str, int]]] = {
    "count": [{"m": 2, "n": 2}, {"m": 2, "n": 5}, {"m": 0, "n": 1}, {"m": 0, "n": 0}],
    "line": [{"k": 3, "j": 3}, {"k": 1, "j": 2}, {"k": 0, "j": 2}, {"k": 9, "j": 9}],
    "off_axis": [{"a": 3, "b": 3}, {"a": 3, "b": 2}, {"a": 1, "b": 0}],
    "static_index": [{"a": 3, "j": 3}, {"a": 5, "j": 4}],
    "scalar": [{"a": 3, "k": 3}, {"a": 5, "k": 1}],
}
UNFIT: dict[str, list[tuple[dict[str, int], str]]] = {
    "count": [({"m": 3, "n": 2}, "0 is larger than updates, of size 2"), ({"m": 1, "n": 0}, "0")],
    "line": [({"k": 3, "j": 2}, "1 is larger than updates, of size 2"), ({"k": 2, "j": 1}, "1")],
    "off_axis": [({"a": 2, "b": 3}, "0 is larger than data, of size 2"), ({"a": 0, "b": 1}, "0")],
    "static_index": [({"a": 2, "j": 3}, "data, of size 2"), ({"a": 3, "j": 2}, "updates, of size")],
    "scalar": [({"a": 2, "k": 3}, "1 is larger than data, of size 2")],
}


@pytest.mark.turns(3)
@pytest.mark.parametrize("bounds", BOUNDS)
def test_an_index_larger_than_what_it_covers(device: str, bounds: str) -> None:
    builder = relax.BlockBuilder()
    # Kernels take long to compile for a simulated device, and the host's part is the same.
    forms = FORMS if device == "llvm" else {name: FORMS[name] for name in _FEW}
    for name, (build, shapes, axis) in forms.items():
        _add(builder, name, build, shapes, axis)
    with tvm_scatter.options(bounds=bounds):
        executable = tvm.compile(builder.get(), target_of(device))
    machine, on = relax.VirtualMachine(executable, device_of(device)), device_of(device)
    for name, (_, shapes, axis) in forms.items():
        kind = name if name in FIT else name.split("_")[-1]
        for sizes in FIT[kind]:
            arrays = _arrays(name, shapes, sizes, axis)
            tensors = [tvm.runtime.tensor(array, device=on) for array in arrays]
            expected = _expected(*arrays, axis)
            np.testing.assert_array_equal(machine[name](*tensors).numpy(), expected, str(sizes))
        for sizes, said in UNFIT[kind]:
            arrays = _arrays(name, shapes, sizes, axis)
            tensors = [tvm.runtime.tensor(array, device=on) for array in arrays]
            with pytest.raises(ValueError, match=f"scatter_elements: index of size .*{said}"):
                machine[name](*tensors)


def _add(
    builder: relax.BlockBuilder, name: str, build: Any, shapes: Sequence[Shape], axis: int
) -> None:
    sizes: dict[str, Any] = {}
    parameters = []
    for each, (shape, dtype) in enumerate(
        zip(shapes, ("float32", "int64", "float32"), strict=True)
    ):
        dims = [
            sizes.setdefault(d, tvm.tirx.Var(d, "int64")) if isinstance(d, str) else d
            for d in shape
        ]
        parameters.append(relax.Var(f"p{each}", relax.TensorType(dims, dtype)))
    with builder.function(name, parameters):
        with builder.dataflow():
            result = builder.emit(build(*parameters, axis))
            output = builder.emit_output(result)
        builder.emit_func_output(output)


def _arrays(name: str, shapes: Sequence[Shape], sizes: dict[str, int], axis: int) -> list[Any]:
    data, index, updates = (
        tuple(sizes[d] if isinstance(d, str) else d for d in shape) for shape in shapes
    )
    places = np.arange(index[min(axis, len(index) - 1)]) % max(data[axis], 1)
    line = np.zeros(index, "int64")
    line += places if axis or len(index) == 1 else places[:, None]
    values = np.arange(1, np.prod(updates, dtype=int) + 1).reshape(updates)
    return [np.zeros(data, "float32"), line, values.astype("float32")]


def _expected(data: Any, index: Any, updates: Any, axis: int) -> Any:
    out = data.copy()
    if index.ndim == 1:
        index = np.broadcast_to(index[:, None], (len(index), data.shape[1]))
    for at in np.ndindex(*index.shape):
        place = list(at)
        place[axis] = index[at]
        out[tuple(place)] = updates[at] if updates.ndim else updates
    return out


def test_a_constant_that_must_fit(device: str) -> None:
    """It gets another name by the check, under which TVM would free it."""
    builder, count = relax.BlockBuilder(), tvm.tirx.Var("n", "int64")
    given = relax.Var("given", relax.TensorType((count,), "float32"))
    constant = relax.const(np.arange(4, dtype="float32"))
    with builder.function("main", [given]):
        with builder.dataflow():
            checked = expect_sizes(
                constant, [4], [count], shape=[count], what="the table", operator="add"
            )
            table = builder.emit(relax.op.reshape(builder.emit(checked), (count, 1)))
            output = builder.emit_output(table)
        builder.emit_func_output(output)
    pipeline = tvm_scatter.pipeline(target_of(device))
    executable = tvm.compile(builder.get(), target_of(device), relax_pipeline=pipeline)
    run = relax.VirtualMachine(executable, device_of(device))["main"]
    for _ in range(2):
        result = run(tvm.runtime.tensor(np.zeros(4, "float32"), device_of(device)))
        np.testing.assert_array_equal(result.numpy()[:, 0], np.arange(4))
    with pytest.raises(ValueError, match="add: the table of size 4 in dimension 0 must have size"):
        run(tvm.runtime.tensor(np.zeros(5, "float32"), device_of(device)))
