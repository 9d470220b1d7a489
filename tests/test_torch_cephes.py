"""Bessel functions, distributions, ``frexp``, ``gcd`` and ``lcm``, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_harness import check, export, through_tvm  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

from tvm_scatter.errors import ScatterError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

INFINITY = float("inf")
SPECIAL = [float("nan"), INFINITY, -INFINITY, 0.0, -0.0, 8.0, 8.01, 25.0, 25.1, 1e-30, -1e-30]
VALUES = torch.cat(
    [torch.tensor(SPECIAL), torch.linspace(-30, 30, 101), torch.linspace(-0.1, 1.1, 61)]
).double()
RELATIVE = {torch.bfloat16: 2e-2, torch.float32: 2e-5, torch.float64: 1e-11}
FUNCTIONS = ("i0", "i0e", "i1", "i1e", "ndtri", "erfcx", "log_ndtr")


def functions(x: Any) -> Any:
    return tuple(getattr(torch.special, name)(x) for name in FUNCTIONS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.turns(2)
def test_functions(dtype: Any) -> None:
    x = VALUES.to(dtype)
    for name, found, right in zip(
        FUNCTIONS, through_tvm(functions, [x]), functions(x), strict=True
    ):
        torch.testing.assert_close(
            *(found, right),
            **{"rtol": RELATIVE[dtype], "atol": 1e-37, "equal_nan": True},
            msg=lambda text, name=name: f"{name}: {text}",
        )


def test_functions_on_a_gpu() -> None:
    x = torch.tensor([0.5, -3.0, 9.0, 0.0, INFINITY])
    found = through_tvm(functions, [x], device="cuda")
    for one, other in zip(found, functions(x), strict=True):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str
)
@pytest.mark.turns(2)
def test_mantissas_and_exponents(dtype: Any) -> None:
    numbers = [*SPECIAL, 1.0, 0.999, -3.5, 2.0**-14, 1e-40, -(2.0**-149), 2.0**-1074, 2.0**15]
    x = torch.tensor(numbers, dtype=torch.float64).to(dtype)
    check(torch.frexp, x)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8], ids=str)
@pytest.mark.turns(2)
def test_common_divisors(dtype: Any, device: str) -> None:
    greatest = torch.iinfo(dtype).max
    numbers = torch.tensor([0, 1, -1, 6, -4, 100, 49, 127, 35, 64, -128, greatest]).to(dtype)

    def both(x: Any, y: Any) -> Any:
        return torch.gcd(x[:, None], y), torch.lcm(x[:, None], y), torch.gcd(x[:0], y[:0])

    if device == "llvm" or dtype == torch.int64:
        check(both, numbers, numbers.flip(0), device=device)


def test_multiples_that_end_pytorch() -> None:
    """The least integer has -1 as a common divisor with some, by which nothing divides it."""
    least = torch.iinfo(torch.int64).min
    x, y = torch.tensor([least, 12]), torch.tensor([5, 18])
    [found] = through_tvm(torch.lcm, [x, y])
    assert found[1] == 36


def test_divisors_of_booleans() -> None:
    x = torch.tensor([True])
    with pytest.raises(ScatterError, match="gcd: values must be integers, not of type bool"):
        from_exported_program(export(torch.gcd, [x, x]))
