"""Reads by index on GPUs: how they are spread over threads, and that they are right."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from assigned_registers import unassigned
from cuda_cases import cuda_target
from harness import (
    at_its_address,
    compile_all,
    device_of,
    relax_function,
    run_all,
    run_compiled,
)
from machine_code import cubin, cuda, needs_nvrtc, ptx
from random_reads import draw_read
from tvm import relax

import tvm_scatter
from tvm_scatter.schedules.gpu.gather_form import form_of, gathering


def take(x: Any, i: Any) -> Any:
    return relax.op.take(x, i, 0)


def module(build: Any, *parameters: tuple[Any, str]) -> tvm.IRModule:
    """A function of parameters, each of a shape, in which sizes may be symbolic, and a type."""
    builder, sizes = relax.BlockBuilder(), {}

    def dim(size: Any) -> Any:
        return (
            sizes.setdefault(size, tvm.tirx.Var(size, "int64")) if isinstance(size, str) else size
        )

    given = [
        relax.Var(f"p{at}", relax.TensorType([dim(size) for size in shape], dtype))
        for at, (shape, dtype) in enumerate(parameters)
    ]
    with builder.function("main", given):
        with builder.dataflow():
            output = builder.emit_output(builder.emit(build(*given)))
        builder.emit_func_output(output)
    return builder.get()


def form(build: Any, *parameters: tuple[Any, str], bounds: str = "drop") -> Any:
    """How the read of a function is spread."""
    with cuda_target("sm_90"), tvm_scatter.options(bounds=bounds):
        mod = relax.transform.LegalizeOps()(module(build, *parameters))
    [function] = [each for _, each in mod.functions_items() if isinstance(each, tvm.tirx.PrimFunc)]
    found = gathering(function)
    assert found is not None
    return form_of(found)


MANY = (1_000_000,)
#: TVM's passes that make one function of what is computed element by element.
FUSION = ("LegalizeOps", "AnnotateTIROpPattern", "FoldConstant", "FuseOps", "FuseTIR")
ZERO = relax.const(0.0, "float32")


@pytest.mark.parametrize(
    ("shape", "dtype", "lanes"),
    [
        ((100_000,), "float32", 1),
        ((100_000, 1), "float32", 1),
        ((100_000, 3), "float32", 1),
        ((100_000, 6), "float32", 2),
        ((100_000, 16), "float32", 4),
        ((100_000, 128), "float32", 4),
        ((100_000, 128), "float16", 8),
        ((100_000, 128), "bfloat16", 8),
        ((100_000, 128), "float64", 2),
        ((100_000, 48), "int8", 16),
        ((100_000, 40), "int8", 8),
        ((100_000, 64), "bool", 1),
        (("n", 64), "float32", 4),
        ((100_000, "d"), "float32", 1),
        ((500, 200, 8), "float32", 4),
    ],
)
def test_rows_are_read_in_vectors(shape: Any, dtype: str, lanes: int) -> None:
    assert form(take, (shape, dtype), (MANY, "int64")).lanes == lanes


def test_elements_of_their_own_are_not() -> None:
    square = (4096, 4096)
    for axis in (0, 1):
        found = form(
            lambda x, i, axis=axis: relax.op.gather_elements(x, i, axis),
            (square, "float32"),
            (square, "int64"),
        )
        assert (found.lanes, found.in_flight) == (1, 4)


def test_a_small_read_is_spread_over_more_threads() -> None:
    counts = (1, 1000, 100_000, 1_000_000)
    found = [form(take, ((1000, 128), "float32"), ((n,), "int64")).in_flight for n in counts]
    assert found == [1, 1, 4, 4]


@pytest.mark.parametrize(
    ("count", "width", "narrow"),
    [
        (1 << 20, 128, True),
        (1 << 31, 1, False),
        (1 << 25, 64, True),
        (1 << 31, 16, False),
        ("n", 64, False),
    ],
)
def test_positions_are_wide_where_they_must_be(count: Any, width: int, narrow: bool) -> None:
    assert form(take, ((1000, width), "int8"), ((count,), "int32")).narrow is narrow


def test_offsets_into_large_tensors_have_64_bits() -> None:
    """Where 32 bits number the reads, but not the elements of what is read."""
    parameters = (((1 << 26, 64), "float32"), ((1000,), "int32"))
    assert form(take, *parameters).narrow
    source = cuda(module(take, *parameters))
    assert re.search(r"\(int64_t\)value0.*\* \(int64_t\)64", source)


def test_explain_says_which_form_a_read_has() -> None:
    mod = module(take, ((100_000, 128), "float32"), (MANY, "int64"))
    text = str(tvm_scatter.explain(mod, cuda_target("sm_90")))
    assert "take, 4 elements to an access, 4 in flight, 32-bit positions, because rows of" in text
    for target, options in ((cuda_target("sm_90"), {"gather": False}), ("llvm", {})):
        with tvm_scatter.options(**options):
            assert str(tvm_scatter.explain(mod, target)) == "no scatter"


@pytest.mark.turns(8)
@needs_nvrtc
@pytest.mark.parametrize("bounds", ["drop", "trust"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "float64"])
def test_the_code_of_rows(dtype: str, bounds: str) -> None:
    """16 bytes to an access, four of them in flight, and nothing in local memory."""
    mod = module(take, ((100_000, 128), dtype), (MANY, "int64"))
    text = ptx(cuda(mod, bounds=bounds))
    accesses = re.findall(r"(ld\.global(?:\.nc)?|st\.global)\.(v[24]\.[bfu]\d+)", text)
    wide = [kind for kind, width in accesses if width in ("v4.f32", "v4.u32", "v4.b32", "v2.f64")]
    kinds = [kind[:2] for kind in wide]
    # What has no branches is ordered by the next compiler.
    assert (kinds if bounds == "drop" else sorted(kinds)) == ["ld"] * 4 + ["st"] * 4
    assert ".local" not in text
    assert not re.search(r"(div|rem)\.[su]64", text)


@needs_nvrtc
def test_the_code_of_elements() -> None:
    """Four indices, four elements, and only then the first write."""
    square = (4096, 4096)
    build = lambda x, i: relax.op.gather_elements(x, i, 1)  # noqa: E731
    text = ptx(cuda(module(build, (square, "float32"), (square, "int64"))))
    kinds = re.findall(r"(ld|st)\.global", text)
    assert kinds == ["ld"] * 8 + ["st"] * 4
    assert ".local" not in text


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_75", "sm_100"])
@pytest.mark.turns(2)
def test_compiles(arch: str) -> None:
    calls = {f"f{seed}": draw_read(seed)[:2] for seed in range(6)}
    assert cubin(cuda_of(calls), arch).startswith(b"\x7fELF")


def slower_below_zero(x: Any, data: Any, i: Any) -> Any:
    """Rows that are read in both branches."""
    emit = relax.BlockBuilder.current().emit
    read = emit(relax.op.take(data, i, 0))
    slow = emit(relax.op.multiply(read, relax.const(0.25)))
    return relax.op.where(emit(relax.op.greater(x, relax.const(0.0))), read, slow)


@needs_nvrtc
def test_what_is_tested_was_written() -> None:
    """ptxas takes the indices that the branches read for one, which neither has read when it is
    tested: garbage where both elements of a row are negative.
    """
    inputs = [((20, 2), "float32"), ((7, 2), "float32"), ((20,), "int64")]
    source = cuda(module(slower_below_zero, *inputs))
    assert len(re.findall(r"__global__[^;]*\{", source)) == 1
    assert unassigned(ptx(source)) == {}


def test_both_branches_read_one_place(device: str) -> None:
    drawn = np.random.default_rng(0)
    x, data = (drawn.standard_normal((rows, 2), dtype="float32") for rows in (5000, 7))
    i = drawn.integers(7, size=5000)
    calls = {"f": (slower_below_zero, [x, data, i])}
    results = run_compiled(compile_all(calls, device), calls, device)
    np.testing.assert_array_equal(results["f"], np.where(x > 0, 1, 0.25) * data[i])


#: The type that rows are read in by index, a wider one beside it, and elements of a row.
BESIDE = [("float16", "float64", 16), ("float16", "int64", 40), ("int8", "float32", 32)]


@pytest.mark.each_device
def test_what_is_read_beside_is_wider(device: str) -> None:
    """As many elements as 16 bytes have of one type are more than a vector of another."""

    def beside(x: Any, wide: Any, i: Any) -> Any:
        read = relax.op.take(x, i, 0, mode="fast")
        return relax.op.multiply(read, relax.op.astype(wide, x.ty.dtype))

    def summed(*operands: Any) -> Any:
        product = relax.BlockBuilder.current().emit(beside(*operands))
        return relax.op.sum(product, axis=[1])

    drawn = np.random.default_rng(0)
    calls: dict[str, Any] = {}
    expected = {}
    for narrow, wide, width in BESIDE:
        x, others = (drawn.integers(0, 3, (5000, width)).astype(each) for each in (narrow, wide))
        i = drawn.integers(5000, size=5000)
        for build in (beside, summed):
            calls[f"{build.__name__}_{wide}"] = build, [x, others, i]
        product = x[i] * others.astype(narrow)
        expected[f"beside_{wide}"], expected[f"summed_{wide}"] = product, product.sum(1, narrow)
    for name, found in run_all(calls, device).items():
        np.testing.assert_array_equal(found, expected[name], err_msg=name)


@needs_nvrtc
def test_all_registers_are_written() -> None:
    calls = {f"f{seed}": draw_read(seed)[:2] for seed in range(6)}
    assert unassigned(ptx(cuda_of(calls))) == {}


def cuda_of(calls: Any) -> str:
    builder = relax.BlockBuilder()
    for name, (build, arrays) in calls.items():
        relax_function(builder, name, build, arrays)
    return cuda(builder.get())


def check(seeds: Any, device: str, bad: bool, **options: Any) -> None:
    drawn = {f"f{seed}": draw_read(seed, bad) for seed in seeds}
    calls = {name: each[:2] for name, each in drawn.items()}
    machine = compile_all(calls, device, **options)
    results = run_compiled(machine, calls, device)
    for name, each in drawn.items():
        assert results[name].dtype == each.expected.dtype, name
        found, expected = (a.astype("float64") for a in (results[name], each.expected))
        np.testing.assert_array_equal(found, expected, err_msg=name)


@needs_nvrtc
def test_what_follows_is_computed_in_between() -> None:
    """A weighted difference of two rows is one kernel, which reads both rows in vectors."""

    def build(x: Any, i: Any, j: Any, w: Any) -> Any:
        emit = relax.BlockBuilder.current().emit
        left, right = (emit(relax.op.take(x, each, 0)) for each in (i, j))
        scaled = emit(relax.op.multiply(right, emit(relax.op.expand_dims(w, 1))))
        return relax.op.nn.relu(emit(relax.op.subtract(left, scaled)))

    index = (MANY, "int64")
    mod = module(build, ((100_000, 128), "float32"), index, index, (MANY, "float32"))
    source = cuda(mod)
    assert len(re.findall(r"__global__[^;]*\{", source)) == 1
    text = ptx(source)
    assert re.findall(r"(ld|st)\.global(?:\.nc)?\.v4", text) == ["ld"] * 8 + ["st"] * 4
    assert ".local" not in text


@pytest.mark.parametrize(
    ("operands", "count", "kernels"),
    [(1, 1000, 1), (2, 10, 1), (2, 1000, 2), (2, "m", 2), (3, 10, 1), (3, 1000, 2)],
)
def test_what_is_read_often_is_computed_once(operands: int, count: Any, kernels: int) -> None:
    """Rows are added up where they are read only if that reads fewer bytes than their sum."""

    def build(i: Any, *rows: Any) -> Any:
        emit = relax.BlockBuilder.current().emit
        total = emit(relax.op.exp(rows[0]))
        for row in rows[1:]:
            total = emit(relax.op.add(total, row))
        return relax.op.negative(emit(relax.op.take(total, i, 0)))

    rows = [((100, 128), "float32")] * operands
    source = cuda(module(build, ((count,), "int64"), *rows))
    assert len(re.findall(r"__global__[^;]*\{", source)) == kernels


def test_a_reduction_is_not_fused_with_reads() -> None:
    """TVM computes normed rows, both reads, their product and its sum by one thread for a sum."""

    def build(x: Any, norm: Any, i: Any, j: Any) -> Any:
        emit = relax.BlockBuilder.current().emit
        normed = emit(relax.op.divide(x, norm))
        left, right = (emit(relax.op.take(normed, each, 0)) for each in (i, j))
        return relax.op.sum(emit(relax.op.multiply(left, right)), [1])

    index = ((5000,), "int64")
    mod = module(build, ((1000, 128), "float32"), ((1000, 1), "float32"), index, index)
    source = cuda(mod, row_sums=False)
    kernels = re.findall(r"__global__ void.* (\w+)_kernel\(.*\{", source)
    assert sorted(kernels) == ["divide", "fused_multiply_sum", "take"]


def test_a_long_expression_is_not_repeated_often() -> None:
    """Each access in flight has the whole expression, for each of its elements."""

    def build(x: Any, i: Any) -> Any:
        emit = relax.BlockBuilder.current().emit
        value = emit(relax.op.take(x, i, 0))
        for _ in range(40):
            value = emit(relax.op.exp(emit(relax.op.multiply(value, relax.const(0.5)))))
        return value

    source = cuda(module(build, ((100_000, 128), "float32"), (MANY, "int64")))
    # In vectors, and element by element for rows that are not aligned.
    assert source.count("__expf(") <= 2 * 40 * 2


def test_the_option_gives_TVMs_own_back() -> None:
    mod = module(take, ((1000, 128), "float32"), (MANY, "int64"))
    kernels = [re.findall(r"__global__.*", cuda(mod, **o)) for o in ({"gather": False}, {})]
    assert "__launch_bounds__(1024)" in kernels[0][0]
    assert "__launch_bounds__(256)" in kernels[1][0]


@pytest.mark.parametrize("shift", [1, 2])
def test_rows_that_are_aligned_to_their_elements_only(shift: int) -> None:
    """What is read and what is written may be a view of another tensor."""
    data = np.arange(40 * 16, dtype="float32").reshape(40, 16)
    index = np.array([3, 39, -1, 0, 7] * 20)
    machine = compile_all({"main": (take, (data, index))}, "cuda", bounds="drop")
    on = device_of("cuda")
    whole = np.concatenate([np.full(shift, np.nan, "float32"), data.reshape(-1)])
    buffer = tvm.runtime.tensor(whole, device=on)
    view = at_its_address(buffer._create_view(data.shape, "float32", 4 * shift))
    result = machine["main"](view, tvm.runtime.tensor(index, device=on))
    np.testing.assert_array_equal(result.numpy(), data[index])


@pytest.mark.turns(2)
@pytest.mark.parametrize("bad", [False, True])
def test_random_reads(device: str, bad: bool, caplog: pytest.LogCaptureFixture) -> None:
    check(range(1000, 1012), device, bad, bounds="drop")
    assert not caplog.records


def test_random_reads_of_symbolic_sizes(device: str) -> None:
    seeds = [seed for seed in range(1100, 1130) if draw_read(seed).takes_symbols]
    check(seeds, device, True, symbolic=True, bounds="drop")


@pytest.mark.turns(2)
@pytest.mark.parametrize("bounds", ["raise", "trust"])
def test_random_reads_of_good_indices(device: str, bounds: str) -> None:
    check(range(1200, 1206), device, False, bounds=bounds)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(2000, 3000, 40))
def test_many_random_reads(device: str, seed: int) -> None:
    check(range(seed, seed + 40), device, bool(seed % 80), bounds="drop")


def first_rows(x: Any) -> Any:
    return relax.BlockBuilder.current().emit(relax.op.strided_slice(x, [0], [0], [64]))


@pytest.mark.parametrize(
    ("build", "shapes", "lanes"),
    [
        (lambda x, y: relax.op.add(x, y), [(1000, 128), (128,)], 4),
        (lambda x, y: relax.op.multiply(x, y), [("n", 6), ("n", 1)], 2),
        (lambda x: relax.op.nn.relu(x), [(64, 128)], 4),
        (lambda x: relax.op.astype(x, "float16"), [(64, 128)], 4),
        (lambda x: relax.op.where(relax.op.less(x, ZERO), ZERO, x), [("n", 128)], 4),
        (
            lambda x, y: relax.op.where(relax.op.astype(x, "bool"), x, y),
            [(64, 128), (64, 1)],
            4,
        ),
        (lambda x: relax.op.nn.relu(x), [(64, 127)], None),
        (lambda x: relax.op.permute_dims(x), [(64, 128)], None),
        (lambda x: relax.op.flip(x, 1), [(64, 128)], None),
        (lambda x, y: relax.op.concat((x, y), 1), [(64, 128), (64, 128)], 4),
        (lambda x, y: relax.op.concat((x, y), 1), [(64, 3), (64, 5)], None),
        (lambda x: relax.op.reshape(x, (64, 4, 32)), [(64, 128)], None),
        (lambda x: relax.op.reshape(first_rows(x), (64, 4, 32)), [(65, 128)], 4),
        (lambda x: relax.op.reshape(first_rows(x), (64, 4, 32)), [(64, 128)], None),
    ],
    ids=[
        *("a row for all", "a number for each row", "one tensor", "another type"),
        *("a number or an element", "one of two tensors", "odd rows"),
        *("transposed", "reversed", "two tensors side by side", "odd columns side by side"),
        *("what takes no function", "the first rows in another shape", "all rows in another shape"),
    ],
)
def test_elementwise_rows_are_read_in_vectors(build: Any, shapes: Any, lanes: int | None) -> None:
    mod = module(build, *((s, "float32") for s in shapes))
    steps = [getattr(relax.transform, name)() for name in FUSION]
    with cuda_target("sm_90"):
        mod = tvm.transform.Sequential(steps)(mod)
    [function] = [f for f in mod.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]
    found = gathering(function)
    assert (None if found is None else form_of(found).lanes) == lanes


@pytest.mark.parametrize("shape", [(37, 12), (3, 130)])
def test_a_choice_between_a_number_and_an_element(device: str, shape: Any) -> None:
    """Also where an element is no number, and where a mask is read."""
    random = np.random.default_rng(1)
    x = random.standard_normal(shape).astype("float32")
    x[::5, 3] = np.nan
    bias, mask = random.standard_normal(shape[1]).astype("float32"), random.random(shape) < 0.5

    def build(x: Any, bias: Any, mask: Any) -> Any:
        total = relax.op.add(x, bias)
        rectified = relax.op.where(relax.op.less_equal(total, ZERO), ZERO, total)
        return relax.op.where(mask, rectified, x)

    total = x + bias
    expected = np.where(mask, np.where(total <= 0, np.float32(0), total), x)
    calls = {"main": (build, (x, bias, mask))}
    result = run_compiled(compile_all(calls, device), calls, device)["main"]
    np.testing.assert_array_equal(result, expected)


def _of_both(choose: Any) -> Any:
    def build(x: Any, y: Any, i: Any, j: Any) -> Any:
        emit = relax.BlockBuilder.current().emit
        return choose(emit(relax.op.take(x, i, 0)), emit(relax.op.take(y, j, 0)))

    return build


def _less(x: Any, y: Any) -> Any:
    return relax.BlockBuilder.current().emit(relax.op.less(x, y))


def _not_less(x: Any, y: Any) -> Any:
    return relax.BlockBuilder.current().emit(relax.op.logical_not(_less(x, y)))


def test_what_is_no_number_chooses_the_other_side(device: str) -> None:
    """The element of that side is read, although no comparison holds."""
    choices = {
        "less": (lambda x, y: relax.op.where(_less(x, y), x, y), lambda x, y: x < y),
        "not less": (lambda x, y: relax.op.where(_not_less(x, y), x, y), lambda x, y: ~(x < y)),
        "zero": (
            lambda x, y: relax.op.where(_less(x, ZERO), ZERO, relax.op.add(x, y)),
            lambda x, y: x < 0,
        ),
    }
    random = np.random.default_rng(0)
    x, y = random.standard_normal((2, 5, 8)).astype("float32")
    x[0, :5], y[1] = np.nan, np.nan
    i, j = np.arange(8) % 5, np.arange(8) * 2 % 5
    calls = {name: (_of_both(choose), [x, y, i, j]) for name, (choose, _) in choices.items()}
    machine = compile_all(calls, device, bounds="drop")
    for name, result in run_compiled(machine, calls, device).items():
        first, second = x[i], y[j]
        chosen = choices[name][1](first, second)
        if name == "zero":
            first, second = np.zeros_like(first), x[i] + y[j]
        np.testing.assert_array_equal(result, np.where(chosen, first, second), err_msg=name)


def test_what_nests_deeply_compiles():
    """A part of an expression stands in it as often as it is used, and once more in each branch."""

    def build(rows, *indices):
        emit, result = relax.BlockBuilder.current().emit, None
        for index in indices:
            read = emit(relax.op.take(rows, index, axis=0))
            result = read if result is None else emit(relax.op.add(read, result))
            negative = emit(relax.op.less(result, relax.const(0.0, "float32")))
            zero = emit(relax.op.zeros_like(result))
            result = emit(relax.op.where(negative, zero, result))
        return result

    generator = np.random.default_rng(0)
    rows = generator.integers(-4, 5, (30, 8)).astype("float32")
    indices = generator.integers(0, 30, (4, 40))
    calls = {"nested": (build, [rows, *indices])}
    [found] = run_compiled(compile_all(calls, "cuda"), calls, "cuda").values()
    wanted = np.zeros((40, 8), "float32")
    for index in indices:
        wanted = np.maximum(rows[index] + wanted, 0)
    np.testing.assert_array_equal(found, wanted)
