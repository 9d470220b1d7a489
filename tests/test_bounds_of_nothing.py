"""A bad index is an error under ``raise`` even where there is no element to write or to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from harness import compile_all, device_of, target_of
from tvm import relax

import tvm_scatter
from tvm_scatter.ops.operators import index_put, scatter_elements, scatter_nd

Array = np.ndarray[Any, Any]


def put(axes: list[int]) -> Callable[..., Any]:
    return lambda data, *rest: index_put(data, rest[:-1], rest[-1], axes)


def zeros(*shape: int) -> Array:
    return np.zeros(shape, "float32")


def entries(*values: int) -> Array:
    return np.array(values)


#: Accesses with a bad index, and what is said of it.
BAD: dict[str, tuple[Callable[..., Any], list[Array], str]] = {
    "put": (put([0]), [zeros(0), entries(0, 2**40), zeros(2)], "index 0 .*extent 0"),
    "put_rows": (put([0]), [zeros(0, 3), entries(-1), zeros(1, 3)], "index -1 .*extent 0"),
    "put_behind": (put([0]), [zeros(2, 0), entries(1, 2), zeros(2, 0)], "index 2 .*extent 2"),
    "put_before": (put([1]), [zeros(0, 2), entries(1, -3), zeros(0, 2)], "index -3 .*extent 2"),
    "put_apart": (
        put([0, 2]),
        [zeros(2, 0, 3), entries(1), entries(3), zeros(1, 0)],
        "index 3 .*component 1 .*extent 3",
    ),
    "elements": (scatter_elements, [zeros(0), entries(0, 1), zeros(2)], "index 0 .*extent 0"),
    "nd": (scatter_nd, [zeros(4, 0), np.array([[1, 0]]), zeros(1)], "index 0 .*component 1"),
    "stock_elements": (
        lambda d, i, u: relax.op.scatter_elements(d, i, u, 0),
        [zeros(0, 3), np.zeros((1, 3), "int64"), zeros(1, 3)],
        "index 0 .*extent 0",
    ),
    "take": (lambda d, i: relax.op.take(d, i, 0), [zeros(0), entries(0)], "index 0 .*extent 0"),
    "take_behind": (
        lambda d, i: relax.op.take(d, i, 0),
        [zeros(2, 0), entries(1, 2)],
        "index 2 .*extent 2",
    ),
}
#: The same without a bad index, or without any.
GOOD: dict[str, tuple[Callable[..., Any], list[Array]]] = {
    "put": (put([0]), [zeros(0), entries().astype("int64"), zeros(0)]),
    "put_behind": (put([0]), [zeros(2, 0), entries(1, -2), zeros(2, 0)]),
    "put_before": (put([1]), [zeros(0, 2), entries(1, -2), zeros(0, 2)]),
    # Together they are empty, so that nobody asks for row 9.
    "put_pairs": (
        put([0, 1]),
        [zeros(5, 4), np.full((7, 1), 9), np.zeros((7, 0), "int64"), zeros(7, 0)],
    ),
    "elements": (scatter_elements, [zeros(0), entries().astype("int64"), zeros(0)]),
    "nd": (scatter_nd, [zeros(4, 0), np.zeros((0, 2), "int64"), zeros(0)]),
    "take_behind": (lambda d, i: relax.op.take(d, i, 0), [zeros(2, 0), entries(1, -2)]),
}
#: Accesses whose sizes may all be symbolic. Then a function holds several kernels, which take long
#: to compile for a simulated device.
_SYMBOLIC = {
    "llvm": ("put", "put_rows", "put_behind", "put_before", "elements", "take_behind"),
    "cuda": ("put", "put_before", "take_behind"),
}


def calls(cases: Any, device: str, symbolic: bool) -> dict[str, Any]:
    chosen = {n: case for n, case in cases.items() if n in _SYMBOLIC[device] or not symbolic}
    return {name: (build, arrays) for name, (build, arrays, *_) in chosen.items()}


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.turns(2)
def test_a_bad_index_raises(device: str, symbolic: bool) -> None:
    chosen = calls(BAD, device, symbolic)
    machine = compile_all(chosen, device, symbolic, bounds="raise")
    for name, (_, arrays) in chosen.items():
        tensors = [tvm.runtime.tensor(array, device=device_of(device)) for array in arrays]
        with pytest.raises(IndexError, match=BAD[name][2]):
            machine[name](*tensors)


@pytest.mark.parametrize("donate", [(), ("p0",)], ids=["new", "in_place"])
@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.turns(4)
def test_what_nobody_asks_for_is_no_error(
    device: str, symbolic: bool, donate: tuple[str, ...]
) -> None:
    chosen = calls(GOOD, device, symbolic)
    machine = compile_all(chosen, device, symbolic, bounds="raise", donate=donate)
    for name, (_, arrays) in chosen.items():
        tensors = [tvm.runtime.tensor(array, device=device_of(device)) for array in arrays]
        shape = machine[name](*tensors).numpy().shape
        assert shape == ((2, 0) if name == "take_behind" else arrays[0].shape), name


@pytest.mark.each_device
def test_pairs_of_which_there_may_be_none(device: str) -> None:
    """Row 9 is bad where it is asked for."""
    sizes = [5, 4], [3, 1], [3, tvm.tirx.Var("n", "int64")], []
    dtypes = "float32", "int64", "int64", "float32"
    parameters = [
        relax.Var(f"p{at}", relax.TensorType(shape, dtype))
        for at, (shape, dtype) in enumerate(zip(sizes, dtypes, strict=True))
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", parameters):
        builder.emit_func_output(builder.emit(put([0, 1])(*parameters)))
    with tvm_scatter.options(bounds="raise"):
        executable = tvm.compile(builder.get(), target_of(device))
    on = device_of(device)
    call = relax.VirtualMachine(executable, on)["main"]

    def result(row: int, count: int) -> Any:
        arrays = zeros(5, 4), np.full((3, 1), row), np.zeros((3, count), "int64"), np.float32(7)
        return call(*[tvm.runtime.tensor(np.asarray(a), device=on) for a in arrays]).numpy()

    np.testing.assert_array_equal(result(9, 0), zeros(5, 4))
    assert result(4, 2)[4, 0] == 7
    with pytest.raises(IndexError, match=r"index 9 .*component 0"):
        result(9, 2)


@pytest.mark.parametrize("bounds", ["drop", "trust"])
@pytest.mark.each_device
def test_nothing_is_looked_for_under_other_policies(device: str, bounds: str) -> None:
    chosen = {name: call for name, call in calls(BAD, device, False).items() if name != "take"}
    machine = compile_all(chosen, device, bounds=bounds)
    for name, (_, arrays) in chosen.items():
        tensors = [tvm.runtime.tensor(array, device=device_of(device)) for array in arrays]
        machine[name](*tensors)
