"""PyTorch's operators that read by index, imported, against PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_harness import Case, check, check_all, compile_for, export, run, through_tvm  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

import tvm_scatter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
aten = torch.ops.aten
CUBE = torch.arange(60.0).reshape(3, 4, 5)
TABLE = torch.arange(20.0).reshape(4, 5)


def index_cases(seed: int, count: int) -> Iterator[Case]:
    """``x[i, :, j]`` for random ranks, sizes, axes and index shapes that broadcast."""
    random = Random(seed)
    for number in range(count):
        rank = random.randint(1, 5)
        axes = sorted(random.sample(range(rank), random.randint(1, rank)))
        common = tuple(random.choice([0, 1, 2, 2, 3]) for _ in range(random.randint(1, 3)))
        empty = 0 in common
        shape = tuple(
            random.choice([1, 2, 3] if axis in axes and not empty else [0, 1, 2, 2, 3])
            for axis in range(rank)
        )
        places: list[int | None] = [None] * rank
        tensors = []
        for axis in axes:
            places[axis] = len(tensors)
            own = [size if random.random() < 0.7 else 1 for size in common]
            if not tensors:
                own = list(common)
            elif 0 not in own:
                own = own[random.randint(0, len(own) - 1) :]
            extent = max(shape[axis], 1)
            index = torch.tensor(
                [random.randint(-extent, extent - 1) for _ in range(torch.Size(own).numel())]
            ).reshape(own)
            tensors.append(index.to(random.choice([torch.int64, torch.int32])))

        def read(x: Any, *tensors: Any, places: Any = tuple(places)) -> Any:
            return aten.index(x, [None if at is None else tensors[at] for at in places])

        data = torch.randn(shape).to(random.choice([torch.float32, torch.int8, torch.float16]))
        yield f"{number}: {shape} {places} {common}", read, (data, *tensors)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_random_indices(seed: int) -> None:
    check_all(list(index_cases(seed, 40)))


def test_random_indices_on_a_gpu() -> None:
    for _, function, inputs in index_cases(2, 3):
        if all(tensor.numel() for tensor in inputs) and function(*inputs).numel():
            check(function, *inputs, device="cuda")


FIRST, SECOND = torch.tensor([0, 2]), torch.tensor([-1, 3])
READS: list[Case] = [
    ("last", lambda x: (x[-1], x[:, -1], x[..., -2]), (CUBE,)),
    ("0-d", lambda x, i: x[i], (CUBE, torch.tensor(-1))),
    ("0-d of a middle axis", lambda x, i: x[:, i], (CUBE, torch.tensor(2, dtype=torch.int32))),
    ("0-d apart", lambda x, i, j: x[i, :, j], (CUBE, torch.tensor(-1), torch.tensor(2))),
    ("apart", lambda x, i, j: x[i, :, j], (CUBE, FIRST, SECOND)),
    ("behind", lambda x, i, j: x[:, i, j], (CUBE, FIRST, SECOND)),
    ("whole", lambda x, i, j: x[i, j, i], (CUBE, FIRST, SECOND)),
    ("mask", lambda x, m: x[m], (CUBE, CUBE > 20)),
    ("mask of an axis", lambda x, m: x[:, m] * 2, (CUBE, TABLE[:, 0] > 5)),
    ("unsafe", lambda x, i: aten._unsafe_index(x, [i, None, i]), (CUBE, FIRST)),
    ("select", lambda x: x.select(1, -3), (CUBE,)),
    ("index_select", lambda x, i: x.index_select(1, i), (CUBE, FIRST)),
    ("index_select 0-d", lambda x, i: x[0, 0].index_select(0, i), (CUBE, torch.tensor(3))),
    ("index_select of 0-d", lambda x, i: x[0, 0, 0].index_select(0, i), (CUBE, FIRST[:1])),
    ("gather", lambda x, i: x.gather(1, i), (CUBE, torch.tensor([[[1, 2], [0, 3]]]))),
    ("gather of 0-d", lambda x, i: x[0, 0, 0].gather(0, i), (CUBE, FIRST[:1])),
    ("gather 0-d", lambda x, i: x[0, 0].gather(0, i), (CUBE, torch.tensor(3))),
    ("gather nothing", lambda x, i: x.gather(1, i), (CUBE, torch.zeros(0, dtype=torch.int64))),
    ("take", lambda x, i: x.take(i), (CUBE, torch.tensor([[1, -60], [0, 59]]))),
    ("take_along_dim", lambda x, i: torch.take_along_dim(x, i, 1),
     (TABLE, torch.tensor([[4], [0], [1], [2]]))),
    ("embedding", lambda w, i: torch.embedding(w, i), (TABLE, torch.tensor([[1, 2], [0, 3]]))),
    ("embedding 0-d", lambda w, i: torch.embedding(w, i),
     (TABLE, torch.tensor(3, dtype=torch.int32))),
    ("embedding of nothing", lambda w, i: torch.embedding(w, i),
     (TABLE, torch.zeros(2, 0, dtype=torch.int64))),
    ("embedding of nothing, three axes", lambda w, i: torch.embedding(w, i),
     (TABLE, torch.zeros(0, 3, 0, dtype=torch.int64))),
    ("embedding of width 0", lambda w, i: torch.embedding(w, i),
     (TABLE[:, :0].clone(), torch.tensor([[1, 2], [0, 3]]))),
    ("take of nothing", lambda x, i: x.take(i),
     (CUBE, torch.zeros(2, 0, dtype=torch.int64))),
    ("take from nothing", lambda x, i: x.take(i),
     (CUBE[:, :0].clone(), torch.zeros(2, 0, dtype=torch.int64))),
    ("upsample", lambda x: torch.nn.functional.interpolate(x[None], scale_factor=2), (CUBE,)),
]  # fmt: skip


def test_reads() -> None:
    def every(*inputs: Any) -> Any:
        results, at = [], 0
        for _, function, own in READS:
            result = function(*inputs[at : at + len(own)])
            results += result if isinstance(result, tuple) else [result]
            at += len(own)
        return tuple(results)

    check(every, *(tensor for _, _, inputs in READS for tensor in inputs))


def test_symbolic_sizes() -> None:
    n, m = torch.export.Dim("n", min=2, max=99), torch.export.Dim("m", min=2, max=99)
    dynamic = ({0: n}, {0: m}, {0: m})

    def model(x: Any, i: Any, j: Any) -> Any:
        picked = x.gather(0, i[:, None].expand(i.shape[0], 5) % 3)
        return x[-1], x[i], x[i, j], x[:, i], x.index_select(0, i % 3), picked

    check(model, TABLE, FIRST - 1, SECOND, dynamic=dynamic)


BAD = [
    ("index", lambda x, i: x[i], -5, -4),
    ("index", lambda x, i: x[i], 4, -4),
    ("index", lambda x, i: x[i, i], 4, -4),
    ("index", lambda x, i: x[None][:, i, None, i], -5, -4),
    ("select", lambda x, i: x[i[1]], -5, -4),
    ("index_select", lambda x, i: x.index_select(0, i), -1, 0),
    ("index_select", lambda x, i: x.index_select(0, i), 4, 0),
    ("gather", lambda x, i: x.gather(0, i[:, None]), -1, 0),
    ("embedding", lambda x, i: torch.embedding(x, i), -1, 0),
    ("embedding", lambda x, i: torch.embedding(x, i), 2**32 + 1, 0),
    ("take", lambda x, i: x.take(i), 20, -20),
    ("take", lambda x, i: x.take(i), 2**32, -20),
]


@pytest.mark.parametrize("operator, function, bad, lowest", BAD)
@pytest.mark.turns(2)
def test_bad_indices(operator: str, function: Any, bad: int, lowest: int) -> None:
    """What PyTorch raises for is an error, and names the operator that PyTorch's user knows."""
    good, wrong = torch.tensor([1, 3]), torch.tensor([1, bad])
    with pytest.raises((IndexError, RuntimeError)):
        function(TABLE, wrong)
    machine = compile_for(from_exported_program(export(function, (TABLE, good))))
    extent = 20 if operator == "take" else 4
    message = rf"{operator}: index {bad} at .* extent {extent}; it must be in \[{lowest}, "
    with pytest.raises(IndexError, match=message):
        run(machine, (TABLE, wrong))
    torch.testing.assert_close(run(machine, (TABLE, good))[0], function(TABLE, good))


def test_a_bad_source_index(device: str) -> None:
    """Of ``x[src]`` beside a scatter, under both policies."""

    def messages(x: Any, edges: Any) -> Any:
        return torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])

    edges = torch.tensor([[0, 3, 1], [1, 1, 2]])
    bad = torch.tensor([[0, 4, 1], [1, 1, 2]])
    module = from_exported_program(export(messages, (TABLE, edges)))
    with tvm_scatter.options(bounds="raise"):
        machine = compile_for(module, device)
    with pytest.raises(IndexError, match=r"index: index 4 at position \(1\)"):
        run(machine, (TABLE, bad), device)
    torch.testing.assert_close(run(machine, (TABLE, edges), device)[0], messages(TABLE, edges))
    with tvm_scatter.options(bounds="drop"):
        machine = compile_for(module, device)
    expected = messages(TABLE, edges)
    expected[1] -= TABLE[3]
    torch.testing.assert_close(run(machine, (TABLE, bad), device)[0], expected)


def test_the_gradient_of_an_embedding() -> None:
    """TVM's own gradient takes what is imported, and its parser what is printed of it."""
    import tvm
    from tvm import relax

    module = from_exported_program(
        export(lambda w, i: torch.embedding(w, i).sum(), (TABLE, torch.tensor([[1, 2], [2, 0]]))),
        unwrap_unit_return_tuple=True,
    )
    tvm.ir.assert_structural_equal(tvm.script.from_source(module.script()), module)
    module = relax.transform.Gradient("main", module["main"].params[:1])(module)
    assert "main_adjoint" in [name.name_hint for name in module.functions]


def test_reads_of_nothing_as_results(device: str) -> None:
    """PyTorch's forms, each the result of the model; some sizes are known at run time only."""
    table, places = torch.zeros(3, 0), torch.tensor([1, 2])
    rows = torch.export.Dim("rows", min=2)
    for name, read in {
        "index": lambda x, i: x[i],
        "index_select": lambda x, i: x.index_select(0, i),
        "embedding": lambda x, i: torch.nn.functional.embedding(i, x),
        "gather": lambda x, i: x.gather(0, i[:, None][:, :0]),
        "gather_columns": lambda x, i: x.gather(1, i[:, None][:, :0]),
    }.items():
        for dynamic in (None, ({}, {0: rows})):
            [result] = through_tvm(read, (table, places), dynamic, device)
            assert result.shape == (2, 0), name
    check(lambda x, i: torch.nn.functional.embedding(i[None], x), table, places, device=device)


def test_take_of_one_element() -> None:
    data = torch.randn(5, 6)

    def function(x: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.take(x, x.argmax()), torch.take(x, at), torch.take(x, at - 4)

    check(function, data, torch.tensor(3))
