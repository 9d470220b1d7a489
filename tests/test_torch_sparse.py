"""PyTorch's sparse tensors of coordinates, made within a model, against PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_harness import assert_same, check, check_all, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

from tvm_scatter import ScatterError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

#: Two entries of one place, and a row without entries.
PLACES = torch.tensor([[0, 1, 1, 0, 1], [1, 0, 0, 3, 2]])
SIZE = (3, 4)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def sparse(places: Any, values: Any, size: Sequence[int] = SIZE) -> Any:
    return torch.sparse_coo_tensor(places, values, size)


def of_size(*size: int) -> Any:
    return lambda i, v: sparse(i, v, size).to_dense()


def test_dense() -> None:
    values = torch.randn(5)
    types = (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool)
    check_all(
        [
            *((str(t), of_size(*SIZE), (PLACES, (values * 3).to(t))) for t in types),
            ("int32 places", of_size(*SIZE), (PLACES.int(), values)),
            ("one axis", of_size(4), (PLACES[1:], values)),
            ("three axes", of_size(2, 3, 4), (torch.cat([PLACES[:1], PLACES]), values)),
            ("dense axes", of_size(3, 4, 2), (PLACES, torch.randn(5, 2))),
            ("rows", of_size(3, 2, 2), (PLACES[:1], torch.randn(5, 2, 2))),
            ("one entry", of_size(2, 2), (PLACES[:, :1], values[:1])),
            ("no entries", of_size(*SIZE), (PLACES[:, :0], values[:0])),
            ("no rows", of_size(0, 4), (PLACES[:, :0], values[:0])),
        ]
    )


def products(i: Any, v: Any, x: Any, y: Any) -> Sequence[Any]:
    """Products with dense matrices, of shapes (4, 2) and (3, 2)."""
    a = sparse(i, v)
    return (
        *(a @ x, torch.sparse.mm(a, x), a.coalesce().mm(x), a.t() @ y, y.t() @ a),
        *(a.transpose(0, 1) @ y, torch.sparse.mm(a.coalesce().t(), y), a @ x[:, :1], a @ x[:, :0]),
        *(torch.sparse.addmm(y, a, x), torch.addmm(y, a, x, beta=0.5, alpha=2)),
        torch.sparse.addmm(y, a, x, beta=0),
    )


def test_products() -> None:
    x, y, v = torch.randn(4, 2), torch.randn(3, 2), torch.randn(5)
    check_all(
        [
            ("float", products, (PLACES, v, x, y)),
            ("double", products, (PLACES, v.double(), x.double(), y.double())),
            ("no entries", products, (PLACES[:, :0], v[:0], x, y)),
        ]
    )
    for dtype in (torch.float16, torch.int64):
        given = ((each * 4).to(dtype) for each in (v, x))
        check(lambda i, v, x: sparse(i, v) @ x, PLACES, *given)


def test_sums_and_factors() -> None:
    def model(i: Any, v: Any, x: Any, row: Any) -> Sequence[Any]:
        a = sparse(i, v)
        scaled = (a * x).to_dense(), (a * row).t() @ torch.ones(3, 2)
        scaled = *scaled, a @ row, a.t().mv(x[:, 0])
        return *scaled, *(torch.sparse.sum(a, k).to_dense() for k in (0, -1))

    check(model, PLACES, torch.randn(5), torch.randn(SIZE), torch.randn(4))


def test_factors_of_other_types() -> None:
    """A number, or floats, times integers."""

    def model(i: Any, v: Any, n: Any, row: Any) -> Sequence[Any]:
        a, b = sparse(i, v), sparse(i, n)
        factors = (2, 2.5, torch.tensor(1.5), row)
        return [(each * factor).to_dense() for each in (a, b) for factor in factors]

    check(model, PLACES, torch.randn(5), torch.arange(1, 6), torch.randn(4).double())


def elementwise(i: Any, v: Any, w: Any) -> Sequence[Any]:
    a, b = sparse(i, v), sparse(i.flip(1), w)
    wide = torch.double if v.is_floating_point() else v.dtype
    results = -a, a / 2, a / w.sum(), a.clone(), a.to(wide)
    results = *results, a + b, torch.add(a, b, alpha=3), a - b, b.coalesce() - a * 2
    return *(each.to_dense() for each in results), (a + b).t() @ v.new_ones(3)


@pytest.mark.parametrize(
    "share", [2, pytest.param(1, marks=pytest.mark.exhaustive)], ids=["some", "all"]
)
def test_elementwise_and_sums(share: int) -> None:
    numbers = torch.arange(1, 6)
    check_all(
        [
            ("floats", elementwise, (PLACES, torch.randn(5), torch.randn(5))),
            ("integers", elementwise, (PLACES, numbers, numbers * 2)),
            ("bytes", elementwise, (PLACES, numbers.byte(), numbers.byte() * 2)),
            ("floats and halves", elementwise, (PLACES, numbers.float(), numbers.float() * 0.5)),
            ("no entries", elementwise, (PLACES[:, :0], torch.randn(0), torch.randn(0))),
        ][::share]
    )


def test_sums_with_dense_axes() -> None:
    def model(i: Any, v: Any) -> Any:
        a = torch.sparse_coo_tensor(i, v, (4, 2))
        return (a - torch.sparse_coo_tensor(i, v * 2, (4, 2)) / 3).to_dense()

    check(model, torch.tensor([[0, 3, 0]]), torch.randn(3, 2))


def compressed(i: Any, v: Any, x: Any, y: Any) -> Sequence[Any]:
    """Products with dense matrices, of shapes (4, 2) and (3, 2), and tensors of other layouts."""
    a = sparse(i, v)
    rows, columns = a.to_sparse_csr(), a.to_sparse(layout=torch.sparse_csc)
    return (
        *(rows @ x, torch.sparse.mm(rows, x), rows @ x[:, 0], (rows * 2) @ x, rows.t() @ y),
        *(columns @ x, torch.sparse.addmm(y, rows, x), torch.addmm(y, rows, x, alpha=2)),
        *(rows.to_dense(), rows.to_sparse() @ x, a.coalesce().to_sparse().to_dense()),
    )


def test_compressed_rows_and_columns(device: str) -> None:
    given = PLACES, torch.randn(5), torch.randn(4, 2), torch.randn(3, 2)
    check(compressed, *given, device=device)


def test_a_dynamic_number_of_entries() -> None:
    def model(i: Any, v: Any, x: Any) -> Any:
        return sparse(i, v) @ x, sparse(i, v).to_dense()

    entries = torch.export.Dim("entries", max=1000)
    x = torch.randn(4, 2)
    program = export(model, [PLACES, torch.randn(5), x], [{1: entries}, {0: entries}, {}])
    machine = compile_for(from_exported_program(program))
    for count in (5, 0, 1, 2):
        given = PLACES[:, :count], torch.randn(count), x
        for actual, expected in zip(run(machine, given), model(*given), strict=True):
            assert_same(actual, expected, f"{count} entries")


def test_a_product_on_a_gpu() -> None:
    check(
        lambda i, v, x: sparse(i, v) @ x, PLACES, torch.randn(5), torch.randn(4, 2), device="cuda"
    )


@pytest.mark.parametrize(("model", "message"), [
    (lambda i, v, x: sparse(i, v).coalesce().values(), "values: sparse tensors are not supported"),
    (lambda i, v, x: torch.sparse.softmax(sparse(i, v), 1).to_dense(), "_sparse_softmax: sparse"),
    (lambda i, v, x: (sparse(i, v) @ sparse(i, v).t()).to_dense(), "two sparse matrices"),
    (lambda i, v, x: v.new_ones(3, 4) + sparse(i, v), "sparse and a dense tensor cannot be"),
    (lambda i, v, x: sparse(i, v), "a result of the model is a sparse tensor"),
    (lambda i, v, x: x.t().to_sparse().to_dense(), "to_sparse: a dense tensor cannot be"),
    (lambda i, v, x: torch.sparse.mm(x.t().to_sparse_csr(), x), "to_sparse_csr: a dense tensor"),
    (lambda i, v, x: sparse(i, v).to_sparse_csr().values(), "values: compressed rows and columns"),
    (lambda i, v, x: torch.sparse.mm(sparse(i, v).to_sparse_csr(), x, "amax"), "sparse_mm: compr"),
    (lambda i, v, x: sparse(i, v).to_sparse_csr(), "a result of the model is a sparse tensor"),
    (lambda i, v, x: sparse(i, v).coalesce().int().to_dense(), "float32 cannot be .* to int32"),
    (lambda i, v, x: sparse(i, v).half().to_dense(), "float32 cannot be .* to float16"),
    (lambda i, v, x: sparse(i, v).detach() @ x, "detach: PyTorch cannot decompose"),
])  # fmt: skip
def test_what_is_refused(model: Any, message: str) -> None:
    program = export(model, [PLACES, torch.randn(5), torch.randn(4, 2)])
    with pytest.raises(ScatterError, match=message):
        from_exported_program(program)


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_sparse_inputs_are_refused(layout: str) -> None:
    a = sparse(PLACES, torch.randn(5))
    a = a.to_sparse_csr() if layout == "csr" else a
    program = export(lambda a, x: a @ x, [a, torch.randn(4, 2)])
    with pytest.raises(ScatterError, match="is a sparse tensor; pass its indices and values"):
        from_exported_program(program)
    if layout == "csr":
        return
    program = export(lambda x: a @ x, [torch.randn(4, 2)])
    with pytest.raises(ScatterError, match="is a sparse tensor; pass its indices and values"):
        from_exported_program(program)
