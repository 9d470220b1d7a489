"""Running sums and products along an axis, against NumPy's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from cuda_on_cpu import real_gpu, record
from harness import at_its_address, compile_all, device_of, orders, run_compiled, target_of
from tvm import relax

import tvm_scatter

Array = np.ndarray[Any, Any]

OPERATORS = {"cumsum": (relax.op.cumsum, np.cumsum), "cumprod": (relax.op.cumprod, np.cumprod)}
#: Tiles of one line have 2048 or 4096 elements; 32 of them are a group, and 1024 a cluster.
LONG = (511, 512, 513, 4095, 4096, 4097, 33 * 4096 + 5)
SHAPES = [
    *((), (1,), (2,), (7,), (33,), (3, 1), (1, 3), (5, 40), (40, 5), (300, 3), (3, 300)),
    *((2, 70, 33), (2, 33, 70), (2, 3, 4, 5), (2, 2, 3, 2, 2), (3, 5000), (5000, 3), (700, 40)),
]


def expected(name: str, array: Array, axis: int | None, dtype: str, exclusive: bool) -> Array:
    """NumPy's result; 16-bit floats are summed up in 32 bits."""
    wide = "float32" if dtype in ("float16", "bfloat16") else dtype
    taken = array.astype(dtype).astype(wide)
    if axis is None or not taken.ndim:
        taken, axis = taken.reshape(-1), 0
    if exclusive:
        first = np.full_like(taken.take([0], axis), name == "cumprod")
        taken = np.concatenate([first, taken], axis).take(range(taken.shape[axis]), axis)
    return OPERATORS[name][1](taken, axis, dtype=wide).astype(dtype)


def values(shape: Sequence[int], dtype: str, seed: int = 0) -> Array:
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.random(tuple(shape)) < 0.5
    if dtype in ("float32", "float64"):
        return random.uniform(-1, 1, tuple(shape)).astype(dtype)
    # Sums of few such numbers are exact in 16 bits.
    return random.integers(0 if dtype.startswith("u") else -2, 3, tuple(shape)).astype(dtype)


def check(cases: Sequence[tuple[Any, ...]], device: str, symbolic: bool = False) -> None:
    """Compare all cases: operator, array, axis, data type of the results, exclusive."""
    calls, wanted = {}, {}
    for number, (name, array, axis, dtype, exclusive) in enumerate(cases):
        build = partial(OPERATORS[name][0], axis=axis, dtype=dtype, exclusive=exclusive)
        calls[f"case_{number}"] = (build, [array])
        wanted[f"case_{number}"] = expected(name, array, axis, dtype, exclusive)
    machine = compile_all(calls, device, symbolic=symbolic)
    for _ in orders(device):
        found = run_compiled(machine, calls, device)
        for (name, array, *rest), at in zip(cases, calls, strict=True):
            assert found[at].dtype == wanted[at].dtype
            same = partial(np.testing.assert_array_equal, err_msg=f"{name} {array.shape} {rest}")
            if array.dtype in ("float32", "float64"):
                tolerance = 1e-4 if array.dtype == "float32" else 1e-12
                same = partial(
                    np.testing.assert_allclose, rtol=tolerance, atol=tolerance, err_msg=str(rest)
                )
            same(found[at], wanted[at])


@pytest.mark.turns(4)
@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("exclusive", [False, True], ids=["inclusive", "exclusive"])
def test_shapes_and_axes(device: str, exclusive: bool, symbolic: bool) -> None:
    # TVM's analysis of its own scan for CPUs takes minutes for more symbolic sizes.
    most = 2 if symbolic and device == "llvm" else 5
    arrays = [values(shape, "int64") for shape in SHAPES if symbolic <= len(shape) <= most]
    axes = [(array, axis) for array in arrays for axis in range(array.ndim)]
    check([("cumsum", *each, "int64", exclusive) for each in axes], device, symbolic)


def test_lines_of_many_tiles(device: str) -> None:
    lines = [values((size,), "int32") for size in LONG]
    check([("cumsum", line, 0, "int32", False) for line in lines], device)
    check([("cumsum", line, 0, "int64", True) for line in lines], device, symbolic=True)


def test_lines_of_many_groups_of_tiles(device: str) -> None:
    """Sums of more than 1024 tiles, whose strips have 17 columns."""
    check([("cumsum", values((64 * 1024 + 99, 17), "int64"), 0, "int64", False)], device)


#: Pairs of types: of the elements and of the results.
DTYPES = [
    *((same, same) for same in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")),
    *((same, same) for same in ("float16", "bfloat16", "float32", "float64")),
    *(("bool", "int64"), ("bool", "int32"), ("bool", "float32"), ("int32", "int64")),
    *(("int8", "int64"), ("int64", "float32"), ("float16", "float32"), ("bfloat16", "float32")),
    *(("float32", "float64"), ("int64", "int8"), ("uint8", "bfloat16")),
]


@pytest.mark.turns(2)
@pytest.mark.parametrize("axis", [0, 1])
def test_types(device: str, axis: int) -> None:
    arrays = [(values((37, 70), own, seed=2), dtype) for own, dtype in DTYPES]
    check([("cumsum", array, axis, dtype, False) for array, dtype in arrays], device)


def test_integers_wrap_around(device: str) -> None:
    whole = np.random.default_rng(4).integers(-(2**63), 2**63 - 1, (3, 600))
    arrays = [whole.astype(dtype) for dtype in ("int8", "uint16", "int32", "int64", "uint64")]
    cases = [(name, each, 1, str(each.dtype), False) for each in arrays for name in OPERATORS]
    check(cases, device)


def test_products(device: str) -> None:
    near_one = np.random.default_rng(3).uniform(0.99, 1.01, (6, 700))
    for axis, dtype in ((0, "float32"), (1, "float64")):
        check([("cumprod", near_one.astype(dtype), axis, dtype, ex) for ex in (0, 1)], device)


def test_of_all_elements(device: str) -> None:
    cases = [values(shape, "int64") for shape in ((), (3,), (30, 40), (2, 3, 2))]
    check([("cumsum", each, None, "int64", ex) for each in cases for ex in (0, 1)], device)


def test_sums_in_16_bits_are_rounded_once(device: str) -> None:
    """The 4097th one of a sum in 16 bits would change nothing any more."""
    ones = np.ones(6000, "float16")
    check([("cumsum", ones, 0, "float16", False)], device)
    check([("cumsum", ones.astype(ml_dtypes.bfloat16), 0, "bfloat16", False)], device)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_what_is_no_number(device: str) -> None:
    row = np.ones((2, 5000), "float32")
    row[0, 4500], row[0, 4700], row[1, 10] = np.inf, -np.inf, np.nan
    check([("cumsum", row, 1, "float32", False), ("cumprod", row, 1, "float32", False)], device)


def test_sums_are_the_same_in_each_run(device: str) -> None:
    """They do not depend on which tile is ready first."""
    x = values((70_000,), "float32")
    machine = compile_all({"main": (partial(relax.op.cumsum, axis=0), [x])}, device)
    calls = {"main": (relax.op.cumsum, [x])}
    found = [run_compiled(machine, calls, device)["main"].tobytes() for _ in orders(device)]
    found += [run_compiled(machine, calls, device)["main"].tobytes() for _ in range(3)]
    assert len(set(found)) == 1


@pytest.mark.each_device
def test_views_that_are_not_aligned(device: str) -> None:
    """A view may begin at any element of a tensor."""
    on, size = device_of(device), 9000
    build = partial(relax.op.cumsum, axis=0)
    machine = compile_all({"main": (build, [np.zeros(size, "float32")])}, device)
    memory = values((size + 4,), "float32")
    whole = tvm.runtime.tensor(memory, on)
    for begin in range(4):
        view = at_its_address(whole._create_view((size,), "float32", 4 * begin))
        found = machine["main"](view).numpy()
        np.testing.assert_allclose(found, memory[begin : begin + size].cumsum(), atol=1e-4)


def test_a_scan_is_one_kernel_or_two(device: str) -> None:
    if device == "llvm" or real_gpu():
        pytest.skip("launches are counted on the simulated device")
    short, long = np.zeros((300, 60), "float32"), np.zeros((3, 90_000), "float32")
    for array, launches in ((short, 1), (long, 2)):
        machine = compile_all({"main": (partial(relax.op.cumsum, axis=1), [array])}, device)
        x = tvm.runtime.tensor(array, device_of(device))
        with record() as log:
            machine["main"](x)
        assert len(log.launches) == launches


@pytest.mark.parametrize(("enabled", "ours"), [(True, True), (False, False)])
def test_what_is_switched_off_is_tvms(enabled: bool, ours: bool) -> None:
    x = relax.Var("x", relax.TensorType([5], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.cumsum(x, 0)))
    with tvm_scatter.options(enabled=enabled), target_of("cuda") as target:
        mod = relax.get_default_pipeline(target)(builder.get())
    assert any(name.name_hint == "running_sum" for name in mod.functions) == ours
