"""Tensors that lie side by side in a result, with what is computed of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from cuda_cases import cuda_target
from harness import relax_function, run_all
from machine_code import cuda
from tvm import relax

from tvm_scatter.schedules.gpu import gather_kernel

Array = np.ndarray[Any, Any]
Case = tuple[Callable[..., Any], list[Array], Array]
RANDOM = np.random.default_rng(0)
#: Sizes that are symbolic in a test; no other size is one of them.
ROWS, MORE = 7, 11


def emit(expression: Any) -> Any:
    return relax.BlockBuilder.current().emit(expression)


def numbers(*shape: int, dtype: str = "float32") -> Array:
    kind = getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype
    return RANDOM.integers(0, 2 if dtype == "bool" else 9, shape).astype(kind)


def joined(axis: int, *arrays: Array) -> Case:
    return (
        lambda *given: relax.op.concat(given, axis),
        list(arrays),
        np.concatenate(arrays, axis),
    )


def rectified(axis: int, *arrays: Array) -> Case:
    given = [array - 4 for array in arrays]
    wanted = np.maximum(np.concatenate(given, axis), 0)
    return lambda *each: relax.op.nn.relu(emit(relax.op.concat(each, axis))), given, wanted


def rotated() -> Case:
    """Rotary positions: half of each row is turned and stands in front of the other."""
    given, factor = numbers(2, ROWS, 16), numbers(ROWS, 16)

    def build(given: Any, factor: Any) -> Any:
        low, high = (
            emit(relax.op.strided_slice(given, [2], [begin], [begin + 8])) for begin in (0, 8)
        )
        turned = emit(relax.op.concat((emit(relax.op.negative(high)), low), 2))
        return relax.op.add(given, emit(relax.op.multiply(turned, factor)))

    turned = np.concatenate([-given[..., 8:], given[..., :8]], -1)
    return build, [given, factor], given + turned * factor


def computed_apart() -> Case:
    """Each part is computed in a way of its own, and some of the result is masked."""
    left, right, mask = numbers(ROWS, 8), numbers(MORE, 8), numbers(1, 8, dtype="bool")
    zero = relax.const(0.0, "float32")

    def build(left: Any, right: Any, mask: Any) -> Any:
        parts = emit(relax.op.negative(left)), emit(relax.op.multiply(right, right))
        return relax.op.where(mask, emit(relax.op.concat(parts, 0)), zero)

    return build, [left, right, mask], np.where(mask, np.concatenate([-left, right**2]), 0)


def chosen_by_bytes() -> Case:
    """The condition compares numbers without a sign, which differ along a row."""
    one, many = numbers(5, ROWS, 1, dtype="uint8"), numbers(5, ROWS, 16, dtype="uint8")
    five = relax.const(5, "uint8")

    def build(one: Any, many: Any) -> Any:
        chosen = emit(relax.op.where(emit(relax.op.greater(many, five)), one, many))
        return relax.op.concat((chosen, many), 1)

    return build, [one, many], np.concatenate([np.where(many > 5, one, many), many], 1)


def read_by_index() -> Case:
    data, index, more = numbers(ROWS, 8), RANDOM.integers(0, ROWS, MORE), numbers(MORE, 4)

    def build(data: Any, index: Any, more: Any) -> Any:
        return relax.op.concat((emit(relax.op.take(data, index, 0)), more), 1)

    return build, [data, index, more], np.concatenate([data[index], more], 1)


def lines_read_by_index() -> Case:
    """Rows of bytes, each at a place that depends on the number of rows of a line."""
    data, index = numbers(3, ROWS, 32, dtype="int8"), RANDOM.integers(0, ROWS, MORE)
    return lambda data, index: relax.op.take(data, index, 1), [data, index], data[:, index]


def padded(*widths: int, shape: tuple[int, ...] = (ROWS, 8)) -> Case:
    given = numbers(*shape)
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    return (
        lambda given: relax.op.nn.pad(given, list(widths), "constant", 3.0),
        [given],
        np.pad(given, pairs, constant_values=3),
    )


def flipped(axis: int) -> Case:
    given = numbers(3, ROWS, 8)
    return (
        lambda given: relax.op.negative(emit(relax.op.flip(given, axis))),
        [given],
        -np.flip(given, axis),
    )


CASES: dict[str, Case] = {
    "a row behind others": joined(1, numbers(2, ROWS, 8), numbers(2, 1, 8)),
    "rows of unknown numbers": joined(0, numbers(ROWS, 8), numbers(MORE, 8), numbers(ROWS, 8)),
    "columns": joined(1, numbers(ROWS, 8), numbers(ROWS, 4)),
    "columns of two": joined(1, numbers(ROWS, 6), numbers(ROWS, 2)),
    "odd columns": joined(1, numbers(ROWS, 3), numbers(ROWS, 5)),
    "a vector": joined(0, numbers(ROWS), numbers(MORE)),
    "two lines": joined(1, numbers(2, ROWS), numbers(2, MORE)),
    "nothing beside": joined(0, numbers(ROWS, 8), numbers(0, 8)),
    "many": joined(1, *(numbers(ROWS, width) for width in (4, 8, 4, 12, 4))),
    "halves": joined(1, numbers(ROWS, 8, dtype="float16"), numbers(ROWS, 16, dtype="float16")),
    "shorter": joined(0, numbers(ROWS, 8, dtype="bfloat16"), numbers(1, 8, dtype="bfloat16")),
    "bytes": joined(0, numbers(ROWS, 16, dtype="int8"), numbers(1, 16, dtype="int8")),
    "flags": joined(0, numbers(ROWS, 16, dtype="bool"), numbers(MORE, 16, dtype="bool")),
    "doubles": joined(1, numbers(ROWS, 2, dtype="float64"), numbers(ROWS, 4, dtype="float64")),
    "rectified columns": rectified(1, numbers(ROWS, 8), numbers(ROWS, 4)),
    "rectified rows": rectified(0, numbers(ROWS, 8), numbers(MORE, 8)),
    "rotated": rotated(),
    "computed apart": computed_apart(),
    "chosen by bytes": chosen_by_bytes(),
    "read by index": read_by_index(),
    "lines read by index": lines_read_by_index(),
    "padded rows": padded(1, 2, 0, 0),
    "padded columns": padded(0, 0, 4, 8),
    "padded oddly": padded(1, 0, 1, 2),
    "a padded image": padded(0, 0, 1, 1, 1, 1, shape=(2, ROWS, 6)),
    "flipped rows": flipped(1),
    "flipped columns": flipped(2),
}


def check(cases: dict[str, Case], device: str, symbolic: Any) -> None:
    calls = {name: case[:2] for name, case in cases.items()}
    for name, result in run_all(calls, device, symbolic).items():
        np.testing.assert_array_equal(result, cases[name][2], err_msg=name)


@pytest.mark.parametrize("symbolic", [False, (ROWS, MORE)], ids=["known", "unknown"])
def test_results(device: str, symbolic: Any) -> None:
    check({name.replace(" ", "_"): case for name, case in CASES.items()}, device, symbolic)


def test_positions_that_32_bits_do_not_count(on_cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather_kernel, "INT32_VALUES", 9)
    names = ("a row behind others", "two lines", "a vector", "a padded image", "flipped rows")
    check({name.replace(" ", "_"): CASES[name] for name in names}, on_cuda, (ROWS, MORE))


@pytest.mark.gpu
def test_more_elements_than_32_bits_count() -> None:
    torch = pytest.importorskip("torch")
    sizes = (1 << 30) + 3, (1 << 30) + 5
    builder = relax.BlockBuilder()
    given = [
        relax.Var(name, relax.TensorType((2, tvm.tirx.Var(f"{name}s", "int64")), "bool"))
        for name in ("left", "right")
    ]
    with builder.function("main", given):
        with builder.dataflow():
            output = builder.emit_output(relax.op.concat(given, 1))
        builder.emit_func_output(output)
    device = tvm.cuda(0)
    machine = relax.VirtualMachine(
        tvm.compile(builder.get(), tvm.target.Target.from_device(device)), device
    )
    left, right = (torch.zeros((2, size), dtype=torch.bool, device="cuda") for size in sizes)
    left[:, -1], right[:, 0], right[1, -1] = True, True, True
    result = machine["main"](*map(tvm.runtime.from_dlpack, (left, right)))
    result = torch.from_dlpack(result)
    first = sizes[0] - 1
    assert result.nonzero().tolist() == [
        [0, first],
        [0, first + 1],
        [1, first],
        [1, first + 1],
        [1, sum(sizes) - 1],
    ]


class Drawn:
    """A tree of parts side by side, paddings, reversals and arithmetic, and its value."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.arrays: list[Array] = []
        self.build, self.value = self.leaves()
        for _ in range(int(self.random.integers(1, 4))):
            self.build, self.value = self.grown(self.build, self.value)

    def leaves(self) -> Any:
        """Two arrays side by side."""
        axis = int(self.random.integers(2))
        shape = [int(self.random.choice((1, 2, 4, 6, 8, 12))) for _ in range(2)]
        for _ in range(2):
            self.arrays.append(self.random.integers(-9, 9, shape).astype("float32"))
            shape[axis] = int(self.random.choice((1, 3, 4, 8)))
        value = np.concatenate(self.arrays, axis)
        return lambda given: emit(relax.op.concat(given, axis)), value

    def grown(self, build: Any, value: Array) -> Any:
        axis = int(self.random.integers(2))
        kind = self.random.choice(["beside", "pad", "flip", "relu", "add"])
        if kind == "pad":
            widths = [int(width) for width in self.random.choice((0, 1, 4, 8), 4)]
            return (
                lambda given: emit(relax.op.nn.pad(build(given), widths, "constant", 5.0)),
                np.pad(value, (widths[:2], widths[2:]), constant_values=5),
            )
        if kind == "flip":
            return lambda given: emit(relax.op.flip(build(given), axis)), np.flip(value, axis)
        if kind == "relu":
            return lambda given: emit(relax.op.nn.relu(build(given))), np.maximum(value, 0)

        def both(given: Any) -> Any:
            once = build(given)
            other = emit(relax.op.flip(once, axis))
            if kind == "add":
                return emit(relax.op.add(once, other))
            return emit(relax.op.concat((once, other), axis))

        other = np.flip(value, axis)
        return both, value + other if kind == "add" else np.concatenate([value, other], axis)


def check_trees(seeds: Any, device: str, symbolic: bool) -> None:
    drawn = {f"seed{seed}": Drawn(seed) for seed in seeds}
    calls: Any = {
        name: (lambda *given, of=each: of.build(given), each.arrays) for name, each in drawn.items()
    }
    for name, result in run_all(calls, device, symbolic).items():
        np.testing.assert_array_equal(result, drawn[name].value, err_msg=name)


@pytest.mark.turns(4)
@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "unknown"])
def test_random_trees(device: str, symbolic: bool) -> None:
    check_trees(range(12), device, symbolic)


@pytest.mark.exhaustive
@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize("first", range(100, 900, 40))
def test_many_random_trees(device: str, first: int, symbolic: bool) -> None:
    check_trees(range(first, first + 40), device, symbolic)


FUSION = ("LegalizeOps", "AnnotateTIROpPattern", "FoldConstant", "FuseOps", "FuseTIR")


@pytest.mark.parametrize("name", ["rectified rows", "computed apart", "flipped rows"])
def test_one_function_where_sizes_are_unknown(name: str) -> None:
    """TVM alone takes a place that depends on a size for one that nobody knows."""
    mod = module(name)
    with cuda_target("sm_90"):
        mod = tvm.transform.Sequential([getattr(relax.transform, each)() for each in FUSION])(mod)
    assert sum(isinstance(each, tvm.tirx.PrimFunc) for each in mod.functions.values()) == 1


def module(name: str) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    relax_function(builder, "main", *CASES[name][:2], symbolic=(ROWS, MORE))
    return builder.get()


@pytest.mark.parametrize(
    ("name", "access"),
    [
        ("a row behind others", "float4"),
        ("rectified columns", "float4"),
        ("columns of two", "float2"),
        ("padded columns", "float4"),
        ("flipped rows", "float4"),
        ("rotated", "float4"),
        ("halves", "uint4"),
        ("odd columns", None),
        ("padded oddly", None),
    ],
)
def test_rows_are_read_in_vectors(name: str, access: str | None) -> None:
    source = cuda(module(name))
    vectors = [each for each in ("float4", "float2", "uint4") if f"*({each}*)" in source]
    assert vectors == ([] if access is None else [access])
    assert "longlong4" not in source, "places of which TVM does not see that they are neighbours"


def test_positions_are_divided_in_32_bits() -> None:
    """By sizes of the run time, where they suffice; a choice between rows needs no division."""
    assert "(uint)" in cuda(module("two lines"))
    assert "(uint)" in cuda(module("a row behind others"))
    assert "(uint)" not in cuda(module("columns of two"))
