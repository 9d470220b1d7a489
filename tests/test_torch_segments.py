"""PyTorch's reductions of segments and bags, and counts, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from harness import target_of  # noqa: E402
from torch_harness import Case, check, check_all, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

import tvm_scatter  # noqa: E402
from tvm_scatter.emit.ordering import LIMIT  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def by_length(how: str, initial: float | None = None) -> Any:
    return lambda x, n: torch.segment_reduce(x, how, lengths=n, initial=initial, axis=n.ndim - 1)


def by_offset(how: str, initial: float | None = None) -> Any:
    return lambda x, at: torch.segment_reduce(x, how, offsets=at, initial=initial, axis=at.ndim - 1)


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_segments(every: int) -> None:
    x, rows = torch.randn(9), torch.randn(9, 3)
    strange = torch.tensor([1, float("nan"), 3, float("inf"), -5, -0.0, 2, 1, 1])
    lengths = torch.tensor([0, 2, 0, 0, 4, 3, 0])
    offsets = torch.tensor([0, 0, 2, 2, 2, 6, 9, 9])
    cases: list[Case] = []
    for how in ("sum", "mean", "prod", "max", "min"):
        cases.append((f"lengths {how}", by_length(how), (rows, lengths)))
    for how in ("sum", "max"):
        cases.append((f"special numbers {how}", by_length(how), (strange, lengths)))
    batch = torch.tensor([[2, 0, 7], [3, 6, 0]])
    cases += [
        ("initial", by_length("mean", 2.5), (x, lengths)),
        ("offsets", by_offset("max", 2.5), (x, offsets)),
        ("int32, double", by_length("sum"), (rows.double(), lengths.int())),
        ("brain float", by_length("max"), (rows.bfloat16(), lengths)),
        ("batches", by_length("sum"), (torch.randn(2, 9, 2), batch)),
        ("batches by offset", by_offset("mean"), (torch.randn(2, 9), batch.cumsum(1))),
        ("entries of no segment", by_offset("min"), (rows, torch.tensor([2, 3, 3, 5]))),
        ("one entry", by_length("max"), (torch.randn(1), torch.tensor([1]))),
        ("another name", by_length("amin"), (rows, lengths)),
        ("no entry", by_length("max"), (torch.randn(0, 2), torch.tensor([0, 0]))),
    ]
    check_all(cases[::every])


def test_segments_are_an_order(device: str) -> None:
    """Nobody computes to which segment an entry belongs, and entries of none are left out."""
    x = torch.randint(-4, 5, (1200, 6)).float()
    lengths = torch.tensor([0, 700, 0, 1, 70, 0, 400, 29, 0])
    offsets = torch.tensor([3, 3, 700, 700, 701, 800, 1190])
    cases: list[Case] = [
        *((f"lengths {how}", by_length(how), (x, lengths)) for how in ("sum", "mean", "max")),
        *((f"offsets {how}", by_offset(how), (x, offsets)) for how in ("sum", "min", "max")),
    ]
    check_all(cases, device=device)
    mod = from_exported_program(export(by_offset("sum"), (x, offsets)))
    explained = str(tvm_scatter.explain(mod, target_of(device)))
    assert "order_alone=True" in explained and "add int64" not in explained


@pytest.mark.parametrize("how", ["segments", "bags"])
def test_more_entries_than_an_order_can_have(how: str) -> None:
    """They are scattered by an index. The sizes are declared only."""
    for entries in (LIMIT - 1, LIMIT):
        with torch.device("meta"):
            offsets = torch.empty(3, dtype=torch.int64)
            words, rows = torch.empty(entries, dtype=torch.int64), torch.empty(entries, 1)
            table = torch.empty(5, 2)
        given = (words, table, offsets) if how == "bags" else (rows, offsets)
        function = torch.nn.functional.embedding_bag if how == "bags" else by_offset("sum")
        mod = from_exported_program(export(function, given))
        found = tvm_scatter.explain(mod, target_of("llvm"))
        assert found and any(each.problem.ordered for each in found) == (entries < LIMIT)


@pytest.mark.turns(4)
@pytest.mark.parametrize("bounds", ["raise", "drop", "trust"])
@pytest.mark.parametrize(
    "forced", [None, "sequential", pytest.param("parallel_injective", marks=pytest.mark.exhaustive)]
)
def test_entries_of_no_segment(device: str, bounds: str, forced: str | None) -> None:
    """They are left out under any policy, also by who makes an order of its own of an index."""
    x, offsets = torch.arange(12.0).reshape(6, 2), torch.tensor([1, 3, 3, 5])
    batch = x.T.reshape(2, 6, 1).contiguous(), torch.stack([offsets, offsets - 1])
    for how, given, wanted in (
        (by_offset("sum"), (x, offsets), [[6, 8], [0, 0], [14, 16]]),
        # Each of two rows has segments of its own.
        (by_offset("sum"), batch, [[[6], [0], [14]], [[4], [0], [12]]]),
    ):
        mod = from_exported_program(export(how, given))
        with tvm_scatter.options(bounds=bounds, implementation=forced):
            machine = compile_for(mod, device)
        [result] = run(machine, list(given), device)
        assert result.tolist() == wanted


def test_softmax_of_segments() -> None:
    """As torch_geometric's ``softmax`` of sorted nodes does it."""

    def softmax(x: Any, offsets: Any) -> Any:
        segment = torch.repeat_interleave(offsets.diff(), output_size=9)
        top = torch.segment_reduce(x, "amax", offsets=offsets, axis=0)
        weights = (x - top[segment]).exp()
        total = torch.segment_reduce(weights, "sum", offsets=offsets, axis=0)
        return weights / total[segment]

    check(softmax, torch.randn(9, 3), torch.tensor([0, 2, 2, 9]))


def test_softmax_of_long_segments_and_the_sum_that_it_weights(device: str) -> None:
    """One scatter in the order of the segments: some are cut into pieces, and one into many."""
    lengths = torch.tensor([3, 0, 1, 70, 2200, 0, 129, 1])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    total = int(lengths.sum())

    def attention(x: Any, logits: Any, offsets: Any) -> Any:
        segment = torch.repeat_interleave(offsets.diff(), output_size=total)
        top = torch.segment_reduce(logits, "max", offsets=offsets, axis=0)
        weights = (logits - top[segment]).exp()
        sums = torch.segment_reduce(weights, "sum", offsets=offsets, axis=0)
        shares = weights / sums[segment]
        return torch.segment_reduce(x * shares[:, None], "sum", offsets=offsets, axis=0)

    given = torch.randn(total, 12), torch.randn(total), offsets
    check_all([("attention", attention, given)], device=device)


def test_segments_of_torch_geometric() -> None:
    utils = pytest.importorskip("torch_geometric.utils")

    def every(x: Any, offsets: Any) -> list[Any]:
        return [utils.segment(x, offsets, how) for how in ("sum", "mean", "max", "min")]

    check(every, torch.randn(9, 3), torch.tensor([0, 2, 2, 9]))


def test_dynamic_segments(device: str) -> None:
    entries = torch.export.Dim("entries", max=1000)
    segments = torch.export.Dim("segments", min=3, max=1000)
    x, lengths = torch.randn(6, 3), torch.tensor([2, 0, 4])
    dynamic = ({0: entries}, {0: segments})
    check(by_length("mean"), x, lengths, dynamic=dynamic, device=device)

    def several(x: Any, offsets: Any) -> Any:
        mean, most, total = (by_offset(how)(x, offsets) for how in ("mean", "max", "sum"))
        return torch.cat([mean * 2 + most, torch.relu(total)], 1)

    offsets = torch.tensor([0, 2, 2, 6])
    check(several, x, offsets, dynamic=dynamic, device=device)
    rows, pairs = torch.randn(2, 6, 3), torch.stack([offsets, offsets])
    dynamic = ({1: entries}, {1: segments})
    check(by_offset("mean"), rows, pairs, dynamic=dynamic, device=device)


def test_segments_on_a_gpu() -> None:
    lengths = torch.tensor([2, 0, 4])
    check(by_length("max"), torch.randn(6, 3), lengths, device="cuda")


@pytest.mark.parametrize("name", ["sort_based", "sequential"])
def test_rows_of_bfloat16(name: str) -> None:
    """Rows that are a vector wide, whose extremes TVM could not store as vectors."""
    torch.manual_seed(0)
    values, nodes = torch.randn(60, 4).to(torch.bfloat16), torch.randint(0, 7, (60,))
    values[5, 1] = torch.nan

    def function(values: Any, nodes: Any) -> Any:
        zeros = torch.zeros(7, 4, dtype=torch.bfloat16)
        kinds = ("amax", "amin", "mean", "prod")
        return tuple(
            zeros.index_reduce(0, nodes, values, kind, include_self=included)
            for kind in kinds
            for included in (False, True)
        )

    with tvm_scatter.options(implementation=name):
        check(function, values, nodes)
