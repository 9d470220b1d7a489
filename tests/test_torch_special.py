"""Functions of floats at values where they are easily wrong, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402
from torch_harness import check, export, through_tvm  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

from tvm_scatter.errors import ScatterError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

INFINITY = float("inf")
VALUES = (
    *(float("nan"), INFINITY, -INFINITY, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 3.0, -3.0),
    *(0.1, -0.1, 1e-30, -1e-30, 1e30, -1e30, 1e-3, -1e-3, 7.3, -7.3, 20.0, -20.0, 100.0, -100.0),
)
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
#: Small results must be precise as well.
RELATIVE = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 2e-5, torch.float64: 1e-11}

#: Functions with zeros, close to which only the absolute difference is small.
ABSOLUTE = ("lgamma", "digamma", "sinc", "logaddexp2", "mish")
#: Of these the sign of zero is compared, too.
SIGNED = ("sign", "remainder", "divide", "relu", "clamp", "hard", "zero", "root")

OF_ONE = {
    **{name: getattr(torch, name) for name in ("angle", "erfc", "expm1", "log1p", "signbit")},
    **{name: getattr(torch, name) for name in ("digamma", "erfinv", "isposinf", "isneginf")},
    **{name: getattr(torch, name) for name in ("lgamma", "nan_to_num", "trunc", "frac", "sinc")},
    **{name: getattr(functional, name) for name in ("elu", "logsigmoid", "softplus")},
    "remainder": lambda x: x % 3,
    "remainder of a negative": lambda x: x % -2.5,
    "of a number": lambda x: 3 % x,
    "rounded down": lambda x: torch.div(x, 2.5, rounding_mode="floor"),
    "with a sign": lambda x: torch.copysign(x, -2.0),
}
ACTIVATIONS = {
    **{
        name: getattr(functional, name)
        for name in (
            *("celu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "mish"),
            *("relu", "relu6", "selu", "silu", "softshrink", "softsign"),
        )
    },
    "leaky_relu by zero": lambda x: functional.leaky_relu(x, 0.0),
    "rrelu by zero": lambda x: functional.rrelu(x, 0.0, 0.0),
    "threshold": lambda x: functional.threshold(x, 0.5, 2),
    "clamp": lambda x: torch.clamp(x, 0.0, 3.0),
    "times zero": lambda x: x * 0.0,
    "times minus zero": lambda x: -0.0 * x,
    "root": lambda x: x**0.5,
    "glu": lambda x: functional.glu(torch.cat([x, x.flip(0)])),
}
OF_TWO = {
    **{name: getattr(torch, name) for name in ("copysign", "floor_divide", "fmod", "remainder")},
    **{name: getattr(torch, name) for name in ("logaddexp", "logaddexp2", "heaviside", "hypot")},
    "xlogy": torch.xlogy,
}


def assert_close(functions: dict[str, Any], inputs: Any, device: str) -> None:
    """Compare signs of infinities and zeros, too, where a function rounds or sets signs."""
    expected = {name: function(*inputs) for name, function in functions.items()}
    every: Callable[..., Any] = lambda *given: tuple(f(*given) for f in functions.values())  # noqa: E731
    found = through_tvm(every, inputs, device=device)
    for name, actual in zip(functions, found, strict=True):
        right = expected[name]
        assert actual.dtype == right.dtype, name
        tolerance = RELATIVE.get(right.dtype, 0)
        torch.testing.assert_close(
            *(each.double() for each in (actual, right)),
            **{"rtol": tolerance, "atol": 1e-6 if name in ABSOLUTE else 1e-37},
            equal_nan=True,
            msg=lambda text, name=name: f"{name}: {text}",
        )
        if any(each in name for each in SIGNED):
            zero = right == 0
            assert torch.equal(actual[zero].signbit(), right[zero].signbit()), name


@pytest.mark.turns(4)
@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_one_number(dtype: torch.dtype, device: str) -> None:
    assert_close(OF_ONE, [torch.tensor(VALUES, dtype=torch.float64).to(dtype)], device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.turns(4)
def test_activations(dtype: torch.dtype) -> None:
    assert_close(ACTIVATIONS, [torch.tensor(VALUES, dtype=torch.float64).to(dtype)], "llvm")


def test_activations_on_a_gpu() -> None:
    chosen = (
        "leaky_relu by zero",
        "softshrink",
        "relu",
        "clamp",
        "times zero",
        "times minus zero",
        "root",
    )
    functions = {name: ACTIVATIONS[name] for name in chosen}
    assert_close(functions, [torch.tensor(VALUES)], "cuda")


@pytest.mark.turns(4)
@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_two_numbers(dtype: torch.dtype, device: str) -> None:
    values = torch.tensor(VALUES, dtype=torch.float64).to(dtype)
    left, right = (each.contiguous() for each in torch.broadcast_tensors(values[:, None], values))
    # PyTorch's remainders of great quotients depend on how it was compiled.
    known = ~(left / right).abs().gt(1e6) | right.eq(0)
    assert_close(OF_TWO, [left[known], right[known]], device)


def test_functions_of_integers(device: str) -> None:
    def functions(x: Any, y: Any) -> Any:
        rounded = torch.div(x, y, rounding_mode="floor"), x // y, x % y, torch.fmod(x, y)
        return *rounded, x.signbit(), x.expm1(), x.abs().log1p(), x.copysign(-y), (x > 0).signbit()

    check(
        functions, torch.tensor([-7, 7, -6, 0, 5]), torch.tensor([2, -2, 3, -4, 5]), device=device
    )


def test_the_next_number(device: str) -> None:
    nan, least = float("nan"), 1e-45
    x = torch.tensor([1.0, 0.0, -1.0, 5.0, 0.0, least, INFINITY, 3e38, nan, 1.0])
    y = torch.tensor([2.0, -1.0, INFINITY, 5.0, -0.0, 0.0, 0.0, INFINITY, 1.0, nan])
    for dtype, bits in ((torch.float32, torch.int32), (torch.float64, torch.int64)):
        given = x.to(dtype), y.to(dtype)
        [found] = through_tvm(torch.nextafter, given, device=device)
        wanted = torch.nextafter(*given)
        assert torch.equal(found.isnan(), wanted.isnan())
        assert torch.equal(found.view(bits)[:-2], wanted.view(bits)[:-2])
    program = export(torch.nextafter, [x.bfloat16(), y.bfloat16()])
    with pytest.raises(ScatterError, match="float32 or float64, not bfloat16"):
        from_exported_program(program)


@pytest.mark.turns(2)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8], ids=str)
def test_divisors_that_would_end_the_process(dtype: Any, device: str) -> None:
    """Zero, and -1 of the least number. PyTorch refuses the first on CPUs."""
    least = torch.iinfo(dtype).min
    dividend = torch.tensor([7, 7, 8, least, least, 100], dtype=dtype)
    divisor = torch.tensor([2, 0, 3, 0, 255 if least == 0 else -1, 7], dtype=dtype)

    def quotients(a: Any, b: Any) -> Any:
        rounded = (torch.div(a, b, rounding_mode=mode) for mode in ("floor", "trunc"))
        return (*rounded, a // b, a % b, torch.fmod(a, b))

    found = through_tvm(quotients, (dividend, divisor), device=device)
    defined = divisor != 0
    defined[4] = False
    expected = quotients(dividend[defined], divisor[defined])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one[defined], other)
