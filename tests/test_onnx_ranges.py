"""ONNX's ``Range`` near the ends of int64, where onnxruntime rounds: as Python has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import tvm  # noqa: E402
from harness import device_of, target_of  # noqa: E402
from onnx import parser  # noqa: E402
from tvm import relax  # noqa: E402
from tvm.relax.frontend.onnx import from_onnx  # noqa: E402

import tvm_scatter  # noqa: E402

HEAD = '<ir_version: 10, opset_import: ["" : 18]> g '
LEAST, MOST = -(2**63), 2**63 - 1
RANGES = [
    (2, 9, 3), (2, 9, -1), (2, 9, 7), (9, 2, -3), (5, 5, 1), (5, 5, -1),
    (LEAST + 1, MOST, 2**62), (LEAST, MOST, MOST), (LEAST, MOST, 2**61 + 1),
    (MOST, LEAST, LEAST), (MOST, LEAST, LEAST + 1), (MOST, LEAST, -(2**62)), (0, LEAST, LEAST),
    (MOST - 3, MOST, 1), (MOST - 3, MOST, 4), (LEAST + 2, LEAST, -1), (LEAST + 2, LEAST, -5),
    (LEAST, MOST, -1), (MOST, LEAST, 1), (-2, MOST, 2**62), (1, LEAST, -(2**62)),
]  # fmt: skip
#: Of more than 2^48 numbers.
ENDLESS = [(LEAST + 1, MOST, 1), (MOST, LEAST, -1), (0, MOST, 3), (LEAST, MOST, 2**14)]


def machine_of(inputs: str, constants: str = "", dtype: str = "int64", device: str = "llvm") -> Any:
    text = f"({inputs}) => ({dtype}[p] y) {{ {constants} y = Range(start, limit, step) }}"
    module = from_onnx(parser.parse_model(HEAD + text))
    return relax.VirtualMachine(tvm.compile(module, target_of(device)), device_of(device))


def of(machine: Any, numbers: Sequence[int], dtype: str = "int64", device: str = "llvm") -> Any:
    given = (tvm.runtime.tensor(np.array(each, dtype), device_of(device)) for each in numbers)
    result = machine["main"](*given).numpy()
    assert result.dtype == dtype
    return result.tolist()


def constant(name: str, number: int) -> str:
    return f"{name} = Constant<value = int64 {{{number}}}>()"


@pytest.mark.optimised
def test_ends_of_int64(device: str) -> None:
    machine = machine_of("int64 start, int64 limit, int64 step", device=device)
    for numbers in RANGES:
        assert of(machine, numbers, device=device) == list(range(*numbers)), numbers
    for numbers in ENDLESS:
        with pytest.raises(ValueError, match=r"the size Range_size0 of a tensor must be from 0 to"):
            of(machine, numbers, device=device)


@pytest.mark.parametrize("dtype", ["int32", "int16"])
@pytest.mark.turns(2)
def test_ends_of_narrow_types(dtype: str) -> None:
    machine = machine_of(f"{dtype} start, {dtype} limit, {dtype} step", dtype=dtype)
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    step = most // 3
    for numbers in ((least, most, step), (most, least, least), (most - 2, most, 7), (3, -4, -2)):
        assert of(machine, numbers, dtype) == list(range(*numbers)), numbers


@pytest.mark.parametrize("start, step", [(LEAST, 2**62), (LEAST, 1), (MOST, -2), (MOST, LEAST)])
@pytest.mark.turns(4)
def test_a_limit_that_is_an_input(start: int, step: int) -> None:
    machine = machine_of("int64 limit", constant("start", start) + constant("step", step))
    for limit in (start, start + 2 * np.sign(step), LEAST, MOST, 0):
        numbers = range(start, int(limit), step)
        if not numbers[2**48 :]:
            assert of(machine, [limit]) == list(numbers)
        else:
            with pytest.raises(ValueError, match="the size Range_size0 of a tensor must"):
                of(machine, [limit])


def test_steps_up_to_a_size() -> None:
    """From numbers so far away that the distance of a size from them overflows."""
    text = """(float[n] x, int64 by) => (int64[p] far, int64[q] near) {
        size = Shape(x) limit = Squeeze(size) zero = Constant<value = int64 {0}>()
        start = Constant<value = int64 {-9223372036854775807}>()
        step = Constant<value = int64 {4611686018427387904}>()
        far = Range(start, limit, step) near = Range(zero, limit, by) }"""
    module = from_onnx(parser.parse_model(HEAD + text))
    machine = relax.VirtualMachine(tvm.compile(module, target_of("llvm")), device_of("llvm"))
    for size, by in ((5, 2), (1, 2), (4, -1), (0, 1)):
        given = np.zeros(size, "float32"), np.array(by)
        far, near = machine["main"](*map(tvm.runtime.tensor, given))
        assert far.numpy().tolist() == list(range(LEAST + 1, size, 2**62))
        assert near.numpy().tolist() == list(range(0, size, by))
    with pytest.raises(ValueError, match=r"Range: the step is 0; it must not be 0\.$"):
        machine["main"](tvm.runtime.tensor(given[0]), tvm.runtime.tensor(np.array(0)))


@pytest.mark.parametrize("numbers", RANGES[6:11])
def test_constants(numbers: tuple[int, int, int]) -> None:
    names = zip(("start", "limit", "step"), numbers, strict=True)
    machine = machine_of("float x", " ".join(constant(*each) for each in names))
    result = machine["main"](tvm.runtime.tensor(np.float32(0)))
    assert result.numpy().tolist() == list(range(*numbers))


@pytest.mark.parametrize("numbers, said", [
    ((2, 9, 0), r"Range: the step is 0; it must not be 0\.$"),
    ((LEAST, MOST, 1), r"Range: from -9\d+ to 9\d+ in steps of 1 there are more than 2\^48"),
])  # fmt: skip
def test_constants_without_an_end(numbers: tuple[int, int, int], said: str) -> None:
    names = zip(("start", "limit", "step"), numbers, strict=True)
    with pytest.raises(tvm_scatter.ScatterError, match=said):
        machine_of("float x", " ".join(constant(*each) for each in names))


def test_a_constant_step_of_zero() -> None:
    for dtype in ("int64", "float"):
        step = f"step = Constant<value = {dtype} {{0}}>()"
        with pytest.raises(tvm_scatter.ScatterError, match="Range: the step is 0; it must not be"):
            machine_of(f"{dtype} start, {dtype} limit", step, dtype)
