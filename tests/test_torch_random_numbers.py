"""Random numbers are refused, unless nothing is computed of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402
from torch_harness import check, export  # noqa: E402
from tvm import relax  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

from tvm_scatter.errors import ScatterError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

RATES = torch.tensor([[0.25, 0.5, 0.75, 0.5]])

RANDOM: dict[str, Callable[[Any], Any]] = {
    "randn": lambda x: x + torch.randn(4),
    "rand": lambda x: x + torch.rand(4),
    "randint": lambda x: x + torch.randint(0, 9, (4,)),
    "randperm": lambda x: x[:, torch.randperm(4)],
    "randn_like": torch.randn_like,
    "rand_like": torch.rand_like,
    "randint_like": lambda x: torch.randint_like(x, 9),
    "normal": lambda x: x + torch.empty(4).normal_(),
    "uniform": lambda x: x.clone().uniform_(),
    "exponential": lambda x: torch.empty_like(x).exponential_(),
    "bernoulli": torch.bernoulli,
    "multinomial": lambda x: torch.multinomial(x, 2),
    "poisson": torch.poisson,
    "dropout": functional.dropout,
    "alpha_dropout": lambda x: functional.alpha_dropout(x, training=True),
    "dropout2d": lambda x: functional.dropout2d(x[None]),
    "rrelu": lambda x: functional.rrelu(x, training=True),
    "attention": lambda x: functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
}


@pytest.mark.parametrize("decompose", [True, False])
@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.turns(3)
def test_random_numbers_are_refused(name: str, decompose: bool) -> None:
    program = export(RANDOM[name], (RATES,))
    with pytest.raises(ScatterError, match=r"^\w+: random numbers are not imported"):
        from_exported_program(program, run_ep_decomposition=decompose)


def test_the_error_names_the_operator() -> None:
    program = export(lambda x: x + torch.randn(4), (RATES,))
    with pytest.raises(ScatterError, match=r"^randn: "):
        from_exported_program(program)


def test_random_numbers_in_a_branch_are_refused() -> None:
    def branches(x: Any) -> Any:
        return torch.cond(x.sum() > 0, torch.rand_like, torch.sin, (x,))

    with pytest.raises(ScatterError, match=r"^rand_like: "):
        from_exported_program(export(branches, (RATES,)))


def test_what_is_not_random_or_not_used() -> None:
    def model(x: Any) -> Any:
        size = torch.randn(7).shape[0]
        torch.rand_like(x) + 1
        return (
            functional.dropout(x, training=False) + size,
            functional.dropout(x, 0.0, training=True),
            functional.scaled_dot_product_attention(x, x, x),
        )

    check(model, RATES)


def test_layers_that_are_evaluated() -> None:
    layer = torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5, batch_first=True).eval()
    recurrent = torch.nn.LSTM(4, 3, num_layers=2, dropout=0.5).eval()

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([layer, recurrent])

        def forward(self, x: Any) -> Any:
            return layer(x[None]), recurrent(x)[0]

    with torch.no_grad():
        from_exported_program(torch.export.export(Model().eval(), (RATES,)))


def test_a_converter_of_the_caller() -> None:
    def zeros(node: Any, importer: Any) -> Any:
        return importer.block_builder.emit(relax.op.zeros((4,), "float32"))

    program = export(lambda x: x + torch.randn(4), (RATES,))
    from_exported_program(program, custom_convert_map={"randn.default": zeros})
