"""Complex numbers inside of a model, as rotary embeddings use them, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_harness import check, export  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

from tvm_scatter.errors import ScatterError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def rotated(query: Any, positions: Any, frequencies: Any) -> Any:
    """Rotary embeddings as DeepSeek-V2 and Llama 4 compute them."""
    turns = torch.polar(torch.ones_like(frequencies), frequencies)[positions] * 0.5
    pairs = torch.view_as_complex(query.reshape(*query.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns[:, :, None, :]).flatten(3)


def test_rotary_embeddings(device: str) -> None:
    torch.manual_seed(0)
    query, frequencies = torch.randn(2, 5, 3, 8), torch.randn(7, 4)
    check(rotated, query, torch.randint(0, 7, (2, 5)), frequencies, device=device)


def test_sizes_that_vary() -> None:
    torch.manual_seed(0)
    length = torch.export.Dim("length", max=100)
    inputs = torch.randn(2, 5, 3, 8), torch.randint(0, 7, (2, 5)), torch.randn(7, 4)
    check(rotated, *inputs, dynamic=({1: length}, {1: length}, {}))


def moved(real: Any, imaginary: Any) -> Any:
    """Operators that move complex numbers, and products with real tensors."""
    number = torch.complex(real, imaginary)
    turned = number.permute(1, 0).unsqueeze(0).expand(2, -1, -1)
    joined = torch.cat([number, number.conj() * real], 1)[:, 1:5].reshape(-1)
    return tuple(torch.view_as_real(each) for each in (turned, joined, real * number[1]))


def test_moves() -> None:
    check(moved, torch.randn(3, 4), torch.randn(3, 4))


def scattered(x: Any, index: Any, places: Any) -> Any:
    """Scatters of complex numbers into what is complex, too."""
    number = torch.view_as_complex(x)
    zeros = torch.zeros(5, dtype=torch.complex64)
    found = (
        zeros.scatter_add(0, index, number.conj()),
        number.index_add(0, index, number * (2 - 1j), alpha=2),
        number.index_put((index,), number, accumulate=True),
        number.scatter(0, places, number[:3]),
        torch.full_like(number, 1 + 2j).index_copy(0, places, number[:3] - number[3:6]),
        torch.ones_like(number) + number,
    )
    real = torch.full_like(number, 2, dtype=torch.float32) * x[:, 0]
    return *(torch.view_as_real(each) for each in found), real


def test_scatters(device: str) -> None:
    torch.manual_seed(0)
    index, places = torch.randint(0, 5, (8,)), torch.randperm(8)[:3]
    check(scattered, torch.randn(8, 2), index, places, device=device)


def promoted(x: Any) -> Any:
    """Complex numbers of 64 and of 128 bits, and what is real like a complex tensor."""
    single, double = torch.view_as_complex(x), torch.view_as_complex(x.double())
    numbers = (
        single + double,
        double - single,
        single * x[:, 0].double(),
        single * double,
        torch.full_like(single, 1 / 3, dtype=torch.complex128),
    )
    ones = torch.ones_like(single, dtype=torch.bool)
    real = torch.zeros_like(single, dtype=torch.int64) + 1, ones
    return *(torch.view_as_real(each) for each in numbers), *real


def test_promotion(device: str) -> None:
    torch.manual_seed(0)
    check(promoted, torch.randn(5, 2), device=device)


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        (lambda x: torch.view_as_real(x * 1j), "mul"),
        (lambda x: torch.view_as_real(torch.view_as_complex(x) + 1.0), "add"),
        (lambda x: torch.view_as_real(torch.view_as_complex(x) - x[:, 0]), "sub"),
        (lambda x: torch.view_as_complex(x).abs(), "abs"),
    ],
    ids=["mul", "add", "sub", "abs"],
)
def test_what_would_need_an_imaginary_part_is_refused(function: Any, operator: str) -> None:
    with pytest.raises(ScatterError, match=f"^{operator}: complex numbers are not supported here"):
        check(function, torch.randn(3, 2))


def test_other_operators_are_refused() -> None:
    def function(x: Any) -> Any:
        return torch.view_as_real(torch.view_as_complex(x).sin())

    with pytest.raises(ScatterError, match="sin: complex numbers are not supported here"):
        check(function, torch.randn(3, 2))


class Turns(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("turns", torch.polar(torch.ones(4), torch.randn(4)))

    def forward(self, x: Any) -> Any:
        return torch.view_as_real(self.turns * x)


def test_complex_inputs_buffers_and_results_are_refused() -> None:
    number = torch.randn(4, dtype=torch.complex64)
    for model, inputs, what in (
        (lambda x: x.real, [number], "inputs_0 is a tensor of type complex64; pass or keep"),
        (Turns(), [torch.randn(4)], "turns is a tensor of type complex64"),
        (lambda x: torch.complex(x, x), [torch.randn(4)], "a result of the model is a tensor of c"),
    ):
        with pytest.raises(ScatterError, match=what):
            from_exported_program(export(model, inputs))
