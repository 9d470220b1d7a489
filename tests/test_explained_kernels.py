"""``explain`` says what is computed by one kernel on a GPU, and how products are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from cuda_cases import cuda_target  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch_harness import export  # noqa: E402
from tvm import relax  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

import tvm_scatter  # noqa: E402
from tvm_scatter.passes.analysis.bindings import Bindings  # noqa: E402
from tvm_scatter.passes.named_steps import with_named_steps  # noqa: E402
from tvm_scatter.passes.put_together import legalized_beside_scatters  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def lines(program: Any, *given: Any, **options: Any) -> list[str]:
    module = from_exported_program(export(program, given))
    with tvm_scatter.options(**options):
        return [str(each) for each in tvm_scatter.explain(module, cuda_target("sm_90")).kernels]


def one_from_the_other(x: Any) -> Any:
    first = x * 3
    second = first.tanh()
    return first, second, first - second


def many(x: Any) -> Any:
    return tuple(x * times for times in range(2, 12))


def long(x: Any) -> Any:
    """Three tensors, each of which takes more than a thousand operations."""
    found = [x, x + 1, x + 2]
    for _ in range(20):
        found = [each.tanh() for each in found]
    return tuple(found)


def normalised(x: Any, residual: Any) -> Any:
    return functional.layer_norm(x + residual, x.shape[-1:])


def product(rows: Any, matrix: Any) -> Any:
    return rows @ matrix


def of_transposed(rows: Any, matrix: Any) -> Any:
    return rows @ matrix.mT


def followed(x: Any, weight: Any) -> Any:
    return (x.reshape(-1, 96) @ weight).reshape(3, 40, 64).sigmoid() * 2


def of_pages(query: Any, keys: Any, table: Any) -> Any:
    return query @ keys[table].flatten(1, 2).transpose(1, 2).transpose(2, 3)


def of_rows_by_index(x: Any, at: Any, weight: Any) -> Any:
    return x[at] @ weight


HALF = torch.float16
PAGES = torch.zeros(2, 4, dtype=torch.long)


@pytest.mark.parametrize(
    ("switch", "program", "given", "wanted"),
    [
        (
            "loops",
            one_from_the_other,
            (torch.ones(40, 6),),
            ["loops: main.lv is computed by one kernel with lv1, lv2"],
        ),
        (
            "loops",
            many,
            (torch.ones(3, 40),),
            [
                "loops: main.lv is computed by one kernel with lv1, lv2, lv3, lv4, lv5, lv6 "
                "and 3 more"
            ],
        ),
        (
            "reductions",
            normalised,
            (torch.ones(40, 96), torch.ones(40, 96)),
            ["reductions: main.lv1 is computed by one kernel of rows: add, layer_norm"],
        ),
        (
            "products",
            product,
            (torch.ones(2, 4, 200, dtype=HALF), torch.ones(2, 200, 24, dtype=HALF)),
            ["products: main.lv2 reads its matrix once for 4 rows"],
        ),
        (
            "products",
            product,
            (torch.ones(300, 96), torch.ones(96, 64)),
            ["products: main.lv is computed in tiles of 32 x 32"],
        ),
        (
            "products",
            followed,
            (torch.ones(3, 40, 96), torch.ones(96, 64)),
            [
                "products: main.lv1 computes in its own shape what follows it: lv3, lv4",
                "products: main.lv1 is computed in tiles of 32 x 32",
            ],
        ),
        (
            "products",
            of_rows_by_index,
            (torch.ones(90, 16), torch.zeros(300_000, dtype=torch.long), torch.ones(16, 64)),
            [
                "products: main.lv1 reads its rows itself: index",
                "products: main.lv1 is computed in tiles of 64 x 64",
            ],
        ),
    ],
)
def test_what_one_kernel_computes(
    switch: str, program: Callable[..., Any], given: tuple[Any, ...], wanted: list[str]
) -> None:
    assert lines(program, *given) == wanted
    assert lines(program, *given, **{switch: False}) == []


def test_products_of_a_cache() -> None:
    given = torch.ones(3, 4, 128, dtype=HALF), torch.ones(3, 256, 128, dtype=HALF)
    assert (
        lines(of_transposed, *given)[0] == "products: main.lv3 reads what is transposed as it lies"
    )
    given = torch.ones(2, 2, 4, 32, dtype=HALF), torch.ones(5, 16, 2, 32, dtype=HALF)
    moved = (
        "reductions: main.lv8_step1 is read and moved by one kernel: "
        "index, reshape, transpose, reshape2"
    )
    assert moved in lines(of_pages, *given, PAGES)


def test_what_is_too_long_for_one_kernel() -> None:
    reason = "it would have too many operations"
    assert lines(long, torch.ones(40, 6)) == [
        f"loops: main.lv59 is computed apart from lv60, lv61: {reason}"
    ]


def test_what_tvm_computes_while_it_compiles_is_not_named() -> None:
    class Rotated(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("angles", torch.ones(40, 8))

        def forward(self, x: Any) -> Any:
            angles = self.angles * 2
            return x @ angles.cos(), x @ angles.sin()

    assert not any(line.startswith("loops") for line in lines(Rotated(), torch.ones(5, 40)))


def test_a_step_of_an_operator_has_a_name_of_its_own() -> None:
    def function(x: Any) -> Any:
        return x * 2, x[x[:, 0] > 0], x + 1

    module = from_exported_program(export(function, (torch.ones(40, 6),)))
    with cuda_target("sm_90"):
        found = Bindings(with_named_steps(legalized_beside_scatters(module), module)["main"])
    names = [each.var.name for each in found if isinstance(each.node, relax.VarBinding)]
    assert any("_step" in name for name in names)
    assert len(names) == len({*names})


def test_nothing_is_said_where_the_package_is_off() -> None:
    assert lines(one_from_the_other, torch.ones(40, 6), enabled=False) == []
