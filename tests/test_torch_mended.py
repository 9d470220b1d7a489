"""Operators beside scatters that TVM's importer answers wrongly or lacks, against PyTorch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402
from torch_harness import assert_same, check, check_all, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

from tvm_scatter.errors import ScatterError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

INTEGERS = torch.tensor([-7, -3, 1, 3, 7, 12])
DIVISORS = torch.tensor([2, -2, 3, 4, -5, 6])
FLOATS = torch.tensor([-1.5, 0.25, 2.5, 9.0, -4.0, 6.0])
BOOLEANS = torch.tensor([True, False, True, True, False, False])
SMALL = INTEGERS.to(torch.int8)
HALVES = FLOATS.half()
INFINITY = float("inf")


def mixed(i: Any, j: Any, f: Any, b: Any, s: Any, h: Any) -> Sequence[Any]:
    """Arithmetic of values of different types."""
    one = torch.tensor(1)
    return (
        *(i + 0.5, i - 0.5, 0.5 - i, 2 - i, i * 0.5, i / 2, i / j, 2 / i, i // 2, i // -2, i // j),
        *(i % 3, i % -3, i % 2.5, torch.fmod(i, 2.5), i // 2.5, f // 2, f % 2.5, s + 0.5, s / 2),
        *(b + 1, b * 2.5, b + b, b * b, b + i, b * f, b == 2, b == b, i == 0.5, i > 2.5, b < 0.5),
        *(i + f, i * h, h + f, s + i, s - one, h + one, f + one, one / 2, one + 0.5, h + one * 0.5),
        *(i**0.5, 2.0**i, i**2, f**2, torch.maximum(f, f + 1)),
        *(torch.add(f, f, alpha=2), torch.sub(i, j, alpha=3), torch.rsub(f, 1, alpha=2)),
        *(torch.add(i, f, alpha=0.5), torch.add(f, 1, alpha=2)),
        *(torch.where(b, i, f), torch.where(b, 0.5, f), torch.where(b, i, 1)),
        torch.where(torch.isfinite(f), f, 0),
    )


def divided(i: Any, j: Any, f: Any, b: Any, s: Any, h: Any) -> Sequence[Any]:
    """Rounded division, limits, shifts and bits."""
    return (
        *(torch.div(i, 2, rounding_mode=mode) for mode in ("floor", "trunc", None)),
        *(torch.div(i, j, rounding_mode=mode) for mode in ("floor", "trunc", None)),
        *(torch.div(f, 2, rounding_mode=mode) for mode in ("floor", "trunc", None)),
        *(torch.div(i, 2.5, rounding_mode=mode) for mode in ("floor", "trunc")),
        *(torch.clamp(i, max=5), torch.clamp(i, min=0), torch.clamp(i, 0, 5), i.clamp(0.5, 5.5)),
        *(torch.clamp(s, max=5), torch.clamp(f, max=5.0), torch.clamp(f, 0, 5), f.clamp(min=1)),
        *(torch.clamp(i, min=j), torch.clamp(f, max=i), torch.clamp(f, f - 1, f + 1)),
        *(torch.clamp_min(i, 0), torch.clamp_max(i, 5), torch.clamp_max(f, 1.5)),
        *(i << 2, i >> 1, i << j.abs(), i >> j.abs(), torch.bitwise_left_shift(s, 1), s >> 1),
        *((i > 0) | (i < -5), i | 8, (f > 0) & b, i ^ j),
    )


def totals(i: Any, j: Any, f: Any, b: Any, s: Any, h: Any) -> Sequence[Any]:
    """Reductions, running sums, and tensors of one value."""
    rows = f.reshape(-1, 1) * torch.tensor([1.0, -1.0, 2.0])
    return (
        *(b.cumsum(0), s.cumsum(-1), s.cumprod(0), f.cumsum(0), h.cumsum(0, dtype=torch.float32)),
        *(b.cumsum(0, dtype=torch.int32), rows.cumsum(1)),
        *(rows.prod(1), rows.prod(-1, keepdim=True), s.prod(0), s.prod(), b.prod(), f.prod(0)),
        *(rows.amax(1), rows.amin(0), rows.amax((0, -1)), rows.amax((0, 1), keepdim=True)),
        *rows.topk(1, 1, sorted=False),
        *(rows.amax(), i.amin(0), b.amax(0), *rows.min(1), *rows.max(1), *rows.min(0, True)),
        *(torch.full((2, 3), INFINITY), torch.full((f.shape[0],), -INFINITY) + f),
        *(torch.full((2,), float("nan")) * f[0], torch.full_like(f, -INFINITY)),
        *(f.new_full((3,), INFINITY), torch.full((2,), 7) * i[0], torch.full_like(i, 2.0)),
        *(torch.full_like(i, INFINITY, dtype=torch.float32), f.masked_fill(b, -INFINITY)),
        *(torch.full((2,), INFINITY, dtype=torch.float16), torch.full((), INFINITY) + f),
        *(torch.arange(3) + 0.5 + f[0], torch.arange(f.shape[0]) * 0.5 + f),
        *(torch.tril_indices(3, 4) + i[0], torch.triu_indices(4, 3, 1) + i[0]),
        torch.diag_embed(f, 1),
    )


def joined(i: Any, j: Any, f: Any, b: Any, s: Any, h: Any) -> Sequence[Any]:
    """Tensors joined with others of another type and with empty ones, and empty ones themselves."""
    rows = f.reshape(-1, 1) * torch.tensor([1.0, -1.0])
    return (
        *(torch.cat([i, f]), torch.cat([b, s]), torch.cat([h, f, i]), torch.stack([f, f * 2])),
        *(torch.cat([torch.tensor([]), rows], dim=-2), torch.cat([rows, rows[:0]], dim=0)),
        torch.empty_like(f, dtype=torch.int32).fill_(3) + s,
        torch.empty(f.shape[0], dtype=torch.int64).fill_(2) + i,
    )


def wrapped(x: Any, y: Any, b: Any) -> Sequence[Any]:
    """Numbers that the type of a tensor cannot hold, which PyTorch wraps."""
    return (
        *(-x, x.sign(), x + -1, x - 300, x * -1, -1 - x, x % -3, torch.fmod(x, -3), x // -3),
        *(x & -2, x | -2, x ^ -1, x == -1, x < -1, x > -1, x > 300, x != 300, x.clamp(max=-1)),
        *(torch.where(b, x, -1), torch.full_like(x, -1), x.masked_fill(b, -1), x - y * 2 + -3),
        *(torch.full((5,), -1, dtype=x.dtype) + x, torch.addcmul(x, x, y, value=-1)),
        *(functional.threshold(x, 5, -1), x.index_fill(0, torch.tensor([1]), -1)),
    )


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
@pytest.mark.turns(2)
def test_numbers_that_wrap(dtype: torch.dtype) -> None:
    x = torch.tensor([200, 100, 7, 255, 3], dtype=torch.uint8).to(dtype)
    y = torch.tensor([100, 3, 2, 255, 5], dtype=torch.uint8).to(dtype)
    check(wrapped, x, y, BOOLEANS[:5])


EXHAUSTIVE = pytest.mark.exhaustive


@pytest.mark.parametrize("function", [mixed, divided, totals, joined])
@pytest.mark.parametrize("sizes", [pytest.param("static", marks=EXHAUSTIVE), "dynamic"])
@pytest.mark.turns(4)
def test_values_of_any_type(function: Any, sizes: str) -> None:
    inputs = (INTEGERS, DIVISORS, FLOATS, BOOLEANS, SMALL, HALVES)
    every = [{0: torch.export.Dim("n", min=3)}] * len(inputs)
    check(function, *inputs, dynamic=every if sizes == "dynamic" else None)


def test_sequences_of_any_step() -> None:
    def model(x: Any) -> Sequence[Any]:
        return (
            *((torch.arange(4, -4, -1)[:, None] + 4).expand(8, 2), torch.arange(5, 0, -2) + x),
            *(torch.arange(5, 5, -1) + x, torch.arange(9, -1, -3, dtype=torch.float32) * x),
            torch.arange(1.0, -1.0, -0.3) + x,
            torch.arange(0.5, 5, 1.5, dtype=torch.int64) + x,
            *(
                torch.arange(5.5, dtype=torch.int32) + x,
                torch.arange(5.5, 0, -2, dtype=torch.int32) * x,
            ),
            *(torch.arange(5.5, dtype=torch.int64) * x, torch.arange(0, 1, 0.3) + x),
            *(torch.arange(8, 0, -2.0, dtype=torch.int64) + x, torch.arange(1, 11, 3) + x),
        )

    check(model, torch.tensor(2.0))


def test_a_sequence_down_from_a_dynamic_size() -> None:
    def model(x: Any) -> Sequence[Any]:
        size = x.shape[0]
        return x[torch.arange(size - 1, -1, -1)] + x, torch.arange(size, -1, -2) * x.sum()

    machine = compile_for(
        from_exported_program(export(model, [FLOATS], [{0: torch.export.Dim("size")}]))
    )
    for size in (6, 5, 1):
        results = run(machine, [FLOATS[:size]])
        for result, expected in zip(results, model(FLOATS[:size]), strict=True):
            assert_same(result, expected, f"size {size}")


def test_grid_sample_of_another_size() -> None:
    image = torch.randn(2, 3, 5, 6)
    grid = torch.rand(2, 4, 7, 2) * 2.4 - 1.2

    def sample(**options: Any) -> Any:
        return lambda x, at: functional.grid_sample(x, at, **options)

    check_all(
        [
            (f"{mode} {padding} {align}", sample(**options), (image, grid))
            for mode, padding, align in [
                ("bilinear", "zeros", False),
                ("bilinear", "border", True),
                ("nearest", "reflection", False),
                ("bicubic", "zeros", False),
            ]
            for options in [{"mode": mode, "padding_mode": padding, "align_corners": align}]
        ]
    )


def test_smoothed_images() -> None:
    def resize(mode: str, size: Any, **options: Any) -> Any:
        return lambda x: functional.interpolate(x, size, mode=mode, antialias=True, **options)

    image = torch.randn(2, 3, 9, 6)
    check_all(
        [
            (f"{mode} {size} {options} {x.dtype}", resize(mode, size, **options), (x,))
            for mode in ("bilinear", "bicubic")
            for size, x, options in [
                ((4, 2), image, {}),
                ((12, 2), image, {"align_corners": True}),
                (None, image.double(), {"scale_factor": 0.4}),
                ((3, 3), image[:, :, :1], {}),
            ]
        ]
    )


def test_powers_of_integers() -> None:
    integers = torch.tensor([[0, 1, 2], [3, 5, 62]])

    def powers(i: Any) -> Sequence[Any]:
        small, byte = i.to(torch.int8), i.to(torch.uint8)
        return (
            *(2**i, 2 ** (i - 1), i**5, i**0, 3 ** (i % 8).int(), i ** i[0]),
            *((i % 7 - 3) ** (i % 9 - 2), (2 * i + 1) ** (i * 12345)),
            *(small ** (small * 9 - 3), byte**byte, (i > 1) ** i),
        )

    check(powers, integers)


def test_powers_of_integers_on_a_gpu() -> None:
    check(lambda i: ((i - 3) ** i, 2**i), torch.tensor([0, 1, 2, 5, 40]), device="cuda")


@pytest.mark.parametrize("order", [INFINITY, -INFINITY])
def test_extreme_norms_of_no_elements(order: float) -> None:
    def norm(x: Any) -> Any:
        return torch.linalg.vector_norm(x[x > 0], order)

    positive = torch.rand(5, 6)
    positive[2, 3] = float("nan")
    machine = compile_for(from_exported_program(export(norm, [positive])))
    assert_same(run(machine, [positive])[0], norm(positive))
    with pytest.raises(ValueError, match="linalg_vector_norm: self, of which 1 or more are needed"):
        run(machine, [-torch.rand(5, 6)])


def test_norms(device: str) -> None:
    """Squares of 16-bit floats are infinite from 256 on."""

    def norms(x: Any, half: Any) -> Any:
        orders = [torch.linalg.vector_norm(x, order, -1) for order in (1, 2, 3, 0.5, -1, -2)]
        wide = torch.linalg.vector_norm(x, 2, (0, 2), keepdim=True, dtype=torch.float64)
        return *orders, wide, half.norm(), half.norm(1, dim=0), functional.normalize(x, dim=1)

    torch.manual_seed(0)
    check(norms, torch.randn(3, 4, 5) + 0.1, 300 * torch.randn(6, 20).half(), device=device)


def test_parts_of_a_dynamic_size(device: str) -> None:
    def parts(x: Any) -> Sequence[Any]:
        first, *others = x.split([x.shape[0] - 2, 1, 1])
        return first, *(part * 2 for part in others)

    program = export(parts, [torch.randn(6, 4)], [{0: torch.export.Dim("rows", min=4, max=90)}])
    machine = compile_for(from_exported_program(program), device)
    for count in (4, 9):
        x = torch.randn(count, 4)
        for found, wanted in zip(run(machine, [x], device), parts(x), strict=True):
            assert_same(found, wanted)


def test_images_of_another_size() -> None:
    def resize(mode: str, **options: Any) -> Any:
        return lambda x: functional.interpolate(x, mode=mode, **options)

    image = torch.randn(1, 2, 9, 10)
    sizes: list[dict[str, Any]] = [
        {"size": (7, 5)},
        {"size": (18, 10)},
        {"scale_factor": 1.7},
        {"scale_factor": (0.6, 2.0)},
        {"scale_factor": 1.7, "recompute_scale_factor": True},
    ]
    cases = [(mode, size, {}) for mode in ("nearest", "bilinear") for size in sizes]
    sizes = [{"scale_factor": 1.7}, {"size": (1, 1)}, {"size": (4, 1)}]
    cases += [("bilinear", size, {"align_corners": True}) for size in sizes]
    check_all(
        [
            (f"{mode} {size} {options}", resize(mode, **size, **options), (image,))
            for mode, size, options in cases
        ]
        + [("halves", resize("bilinear", scale_factor=0.6), (image.half(),))]
    )


def test_images_of_integers() -> None:
    image = torch.randint(0, 256, (1, 2, 12, 13)).to(torch.uint8)
    check(lambda x: functional.interpolate(x, (7, 5)), image)
    for mode in ("bilinear", "bicubic"):
        program = export(lambda x, mode=mode: functional.interpolate(x, (7, 5), mode=mode), [image])
        [found] = run(compile_for(from_exported_program(program)), [image])
        # PyTorch rounds weights, too.
        assert (found.int() - program.module()(image).int()).abs().max() <= 1

    def smooth(x: Any) -> Any:
        return functional.interpolate(x, (7, 5), mode="bilinear", antialias=True)

    with pytest.raises(ScatterError, match="uint8 are not supported; make them float32"):
        from_exported_program(export(smooth, [image]))


def test_nearest_pixels_of_images_of_any_size(device: str) -> None:
    def function(x: Any, y: Any) -> Sequence[Any]:
        return (
            functional.interpolate(x, scale_factor=2),
            functional.interpolate(x, y.shape),
            functional.interpolate(x, y.shape, mode="nearest-exact"),
        )

    sizes = [torch.export.Dim(name, min=2, max=40) for name in ("a", "b", "c", "d")]
    dynamic = [{2: sizes[0], 3: sizes[1]}, {0: sizes[2], 1: sizes[3]}]
    program = export(function, [torch.randn(1, 2, 9, 10), torch.randn(7, 13)], dynamic)
    machine = compile_for(from_exported_program(program), device)
    for given in ((9, 10, 7, 13), (4, 4, 8, 8), (5, 3, 10, 2)):
        inputs = [torch.randn(1, 2, *given[:2]), torch.randn(given[2:])]
        found = run(machine, inputs, device)
        for each, wanted in zip(found, function(*inputs), strict=True):
            assert_same(each, wanted, str(given))


def test_pixels_between_those_of_images_of_any_size(device: str) -> None:
    def function(x: Any, y: Any) -> Sequence[Any]:
        return (
            functional.interpolate(x, scale_factor=3, mode="bilinear"),
            functional.interpolate(x, y.shape, mode="bilinear"),
            functional.interpolate(x, y.shape, mode="bilinear", align_corners=True),
            functional.interpolate(x.double(), (5, y.shape[1]), mode="bilinear"),
        )

    sizes = [torch.export.Dim.AUTO] * 2
    dynamic = [dict(zip((2, 3), sizes, strict=True)), dict(enumerate(sizes))]
    program = export(function, [torch.randn(1, 2, 9, 10), torch.randn(7, 13)], dynamic)
    machine = compile_for(from_exported_program(program), device)
    for given in ((9, 10, 7, 13), (4, 4, 8, 8), (5, 3, 2, 3), (2, 2, 20, 2)):
        inputs = [torch.randn(1, 2, *given[:2]), torch.randn(given[2:])]
        found = run(machine, inputs, device)
        for each, wanted in zip(found, function(*inputs), strict=True):
            assert_same(each, wanted, str(given))


def test_rrelu_outside_of_training() -> None:
    def model(x: Any) -> Sequence[Any]:
        return functional.rrelu(x), functional.rrelu(x, 0.5, 1), functional.rrelu(x[:0])

    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        check(model, torch.tensor([-2.0, 0, 3, float("nan"), -INFINITY], dtype=dtype))


def test_positions_of_max_pool() -> None:
    image = torch.randint(-3, 3, (2, 3, 7, 6)).float()

    def pool(x: Any, *window: Any, **options: Any) -> Any:
        return functional.max_pool2d(x, *window, return_indices=True, **options)

    def every(x: Any) -> Any:
        return (
            *pool(x, 2),
            *pool(x, (3, 2), (2, 1), (1, 0)),
            *pool(x[0], 2, 1, dilation=2),
            *pool(x, 3, 2, ceil_mode=True),
            *pool(x * 0 - 1e30, 2, 2, 1),
            *functional.max_pool1d(x[0], 2, return_indices=True),
            pool(x, 2)[0],
            functional.max_unpool2d(*pool(x[:, :, :6], 2), 2),
        )

    check(every, image)


def test_positions_of_several_that_are_no_numbers() -> None:
    """The last of them is the maximum of a window."""

    def pools(x: Any, plane: Any) -> Any:
        return (
            *functional.max_pool1d(x, 3, 2, 1, return_indices=True),
            *functional.adaptive_max_pool1d(x, 3, return_indices=True),
            *functional.max_pool2d(plane, 2, 1, return_indices=True),
            *functional.adaptive_max_pool2d(plane.half(), 2, return_indices=True),
            *functional.max_pool3d(plane[None].double(), (1, 3, 2), return_indices=True),
        )

    row = torch.tensor([[[1.0, math.nan, 2, 3, math.nan, math.nan, 1, INFINITY, math.nan]]])
    check(pools, row, row.reshape(1, 3, 3))


def test_attention_whose_heads_are_viewed() -> None:
    """The kernel on a CPU writes the heads of a position beside each other."""

    def model(x: Any) -> Any:
        heads = x.view(1, 6, 4, 8).transpose(1, 2)
        result = functional.scaled_dot_product_attention(heads, heads, heads)
        return result.transpose(1, 2).view(1, 6, 2, 16)

    check(model, torch.randn(1, 6, 32))
    check(model, torch.randn(1, 6, 32), run_ep_decomposition=False)


@pytest.mark.turns(3)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_what_is_not_a_number(device: str, dtype: torch.dtype) -> None:
    values = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 3.0, -4.0], dtype=dtype)
    left, right = values[:, None].expand(7, 7), values[None].expand(7, 7)

    def functions(left: Any, right: Any) -> Any:
        replaced = torch.nan_to_num(left, 2.0, 9.0, -9.0)
        of_one = left.isnan(), left.isinf(), left.isfinite(), replaced
        return *of_one, torch.hypot(left, right), left == left, left != left

    check(functions, left.contiguous(), right.contiguous(), device=device)


@pytest.mark.parametrize("sign", [1, -1])
def test_truth_of_whole_tensors(sign: int) -> None:
    def whole(x: Any) -> Any:
        aten = torch.ops.aten
        return aten._is_all_true(x > 0), aten._is_any_true(x > 0), aten._is_all_true(x > -2)

    check(whole, sign * torch.tensor([[1.0, -1.0], [0.5, 1.5]]))
