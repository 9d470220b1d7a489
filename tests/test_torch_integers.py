"""Functions of integers and booleans, whose values PyTorch makes floats, or refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402
from torch_harness import check, export  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

from tvm_scatter.errors import ScatterError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

DTYPES = [torch.bool, torch.int8, torch.uint8, torch.int32, torch.int64]
OF_FLOATS = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "deg2rad", "digamma"),
    *("erf", "erfc", "erfinv", "exp", "exp2", "expm1", "lgamma", "log", "log10", "log1p", "log2"),
    *("logit", "reciprocal", "rsqrt", "sigmoid", "sin", "sinc", "sinh", "sqrt", "tan", "tanh"),
)


def values(dtype: Any) -> Any:
    numbers = [0, 1, 2, 3, 5, 60, 100]
    if dtype.is_signed:
        numbers += [-1, -2, -7, -100]
    return torch.tensor(numbers, dtype=torch.int64).to(dtype)


def floats(x: Any, names: Any = OF_FLOATS) -> Any:
    y = x.flip(0)
    two = torch.atan2(x, y), torch.atan2(y, x + 0.5), torch.copysign(x, y), x / (y + 0.5)
    known = x.isnan(), x.isinf(), x.isfinite(), x.nansum(), x.sign(), torch.add(x, y, alpha=2)
    return *(getattr(torch, name)(x) for name in names), *two, *known


def integers(x: Any, y: Any) -> Any:
    """Shifts by more than there are bits leave nothing, or the sign."""
    shifted = x << y, x >> y, x << 3, x >> 3, x << 99, x >> 99
    return *shifted, functional.hardtanh(x, 1, 3), functional.relu6(x)


def pairs(dtype: Any) -> Any:
    grid = torch.meshgrid(values(dtype), values(dtype), indexing="ij")
    return [each.flatten() for each in grid]


SOME = [
    each
    if each in (torch.bool, torch.uint8, torch.int32)
    else pytest.param(each, marks=pytest.mark.exhaustive)
    for each in DTYPES
]


@pytest.mark.parametrize("dtype", SOME, ids=str)
@pytest.mark.turns(4)
def test_floats_of_integers(dtype: Any) -> None:
    check(floats, values(dtype))


@pytest.mark.parametrize("dtype", SOME[1:], ids=str)
def test_integers_of_integers(dtype: Any) -> None:
    check(integers, *pairs(dtype))


def test_on_a_gpu() -> None:
    def both(x: Any, y: Any) -> Any:
        shifted = x << y, x >> y, x >> 99
        return *floats(x, ("log2", "log10", "atanh", "rsqrt")), *shifted

    check(both, *pairs(torch.int8), device="cuda")


#: What PyTorch exports, and refuses when it runs.
REFUSED: dict[str, Callable[[Any], Any]] = {
    **{
        name: getattr(functional, name)
        for name in ("celu", "hardshrink", "hardsigmoid", "hardswish", "mish", "silu", "softplus")
    },
    "log_sigmoid": functional.logsigmoid,
    **{name: getattr(torch, name) for name in ("frac", "prelu", "rrelu")},
    "prelu": lambda x: functional.prelu(x, x[:1]),
    "logcumsumexp": lambda x: torch.logcumsumexp(x, 0),
    "special_round": torch.special.round,
    "logaddexp": lambda x: torch.logaddexp(x, x),
    "lerp": lambda x: torch.lerp(x, x, 0.5),
    "smooth_l1_loss": lambda x: functional.smooth_l1_loss(x, x),
}


@pytest.mark.parametrize("name", REFUSED)
def test_functions_of_floats_alone(name: str) -> None:
    x = torch.tensor([1, 2])
    with pytest.raises(NotImplementedError):
        REFUSED[name](x)
    program = export(REFUSED[name], [x])
    with pytest.raises(ScatterError, match=f"{name}: values must be floats, not of type int64"):
        from_exported_program(program)
    with pytest.raises(RuntimeError):
        torch.mean(x)
