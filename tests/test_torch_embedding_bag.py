"""PyTorch's ``embedding_bag`` and its gradient, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tvm  # noqa: E402
from harness import target_of  # noqa: E402
from torch_harness import Case, assert_same, check, check_all, compile_for, export, run  # noqa: E402
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

import tvm_scatter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

aten = torch.ops.aten
WORDS = torch.tensor([0, 1, 2, 1, 4, 4, 1])
#: The second bag is empty.
OFFSETS = torch.tensor([0, 2, 2])


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def bags(mode: str, **how: Any) -> Any:
    """``embedding_bag`` of a table, words and offsets, with weights of the words if given."""

    def function(table: Any, words: Any, offsets: Any = None, weights: Any = None) -> Any:
        return torch.nn.functional.embedding_bag(
            words, table, offsets, mode=mode, per_sample_weights=weights, **how
        )

    return function


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_bags(every: int) -> None:
    table, weights = torch.randn(5, 3), torch.randn(7)
    cases: list[Case] = []
    for mode in ("sum", "mean", "max"):
        cases.append((mode, bags(mode), (table, WORDS, OFFSETS)))
        cases.append((f"{mode}, padding", bags(mode, padding_idx=1), (table, WORDS, OFFSETS)))
    ended = torch.tensor([0, 2, 2, 7])
    cases += [
        ("weights", bags("sum", padding_idx=4), (table, WORDS, OFFSETS, weights)),
        ("last offset", bags("mean", include_last_offset=True), (table, WORDS, ended)),
        ("matrix of words", bags("mean"), (table, WORDS[:6].reshape(2, 3))),
        ("int32, double", bags("sum"), (table.double(), WORDS.int(), OFFSETS.int())),
        ("half", bags("sum"), (table.half(), WORDS, OFFSETS)),
        ("no words", bags("max"), (table, WORDS[:0], OFFSETS * 0)),
        ("all padding", bags("max", padding_idx=1), (table, WORDS[1:2], OFFSETS[:1])),
    ]
    check_all(cases[::every])


def test_bags_of_all_sizes(device: str) -> None:
    """What long bags are cut into find their bag by the offsets; nobody computes an index."""
    sizes = [0, 3000, 0, 0, 70, 1, 0, 500, 64, 63, 0]
    words = torch.randint(0, 50, (sum(sizes),))
    offsets = torch.tensor([0, *sizes]).cumsum(0)[:-1]
    # Whole numbers, so that sums are exact.
    table = torch.randint(-4, 5, (50, 12)).float()
    cases: list[Case] = [
        (mode, bags(mode), (table, words, offsets)) for mode in ("sum", "mean", "max")
    ]
    check_all(cases, device=device)
    mod = from_exported_program(export(bags("sum"), (table, words, offsets)))
    explained = str(tvm_scatter.explain(mod, target_of(device)))
    assert "order_alone=True" in explained and "add int64" not in explained


@pytest.mark.each_device
def test_orders_of_nonsense_alone(device: str) -> None:
    """Offsets may be anything where checks are off: nothing is read or written outside."""
    words = torch.arange(300) % 50
    table, offsets = torch.ones(50, 4), torch.tensor([250, -7, 10**6, 3, 0, 2**31 - 1])
    mod = from_exported_program(export(bags("sum"), (table, words, torch.arange(6) * 40)))
    with tvm_scatter.options(bounds="drop"):
        machine = compile_for(mod, device)
    if device == "llvm":
        with pytest.raises(RuntimeError, match="the offsets of ordering must ascend from 0"):
            run(machine, [table, words, offsets], device)
        return
    [result] = run(machine, [table, words, offsets], device)
    # Row 1 has words that are also another row's, so nobody adds them up.
    assert result[[0, 2, 3, 5]].eq(0).all() and result[4].eq(300).all()


@pytest.mark.each_device
def test_words_behind_the_last_bag(device: str) -> None:
    """PyTorch ends sums at the last offset; else these words are of the last bag."""
    table, weights, offsets = torch.randn(5, 3), torch.randn(7), torch.tensor([0, 2, 2, 5])
    ended = {"include_last_offset": True}
    padded = {**ended, "padding_idx": 1}
    cases: list[Case] = [
        *((mode, bags(mode, **ended), (table, WORDS, offsets)) for mode in ("sum", "mean", "max")),
        *((mode, bags(mode, **padded), (table, WORDS, offsets)) for mode in ("sum", "mean")),
        ("double", bags("sum", **ended), (table.double(), WORDS, offsets)),
        ("bfloat16", bags("mean", **ended), (table.bfloat16(), WORDS, offsets.int())),
        ("weights", bags("sum", **ended), (table, WORDS, offsets, weights)),
        ("no bag", bags("sum", **ended), (table, WORDS[:0], offsets[:1])),
    ]
    check_all(cases if device == "llvm" else cases[:3], device=device)


def test_gradients_of_bags() -> None:
    gradient, bag_of = torch.randn(3, 4), torch.tensor([0, 0, 2, 2, 2, 2, 2])
    sizes, none = torch.tensor([2, 0, 5]), torch.tensor([], dtype=torch.int64)
    # PyTorch divides by the frequency of another word on CPUs, so that all must be the same.
    twice = torch.tensor([0, 2, 4, 4, 2, 0])

    def dense(mode: int, often: bool, padding: int) -> Any:
        def function(g: Any, words: Any, bag_of: Any, sizes: Any, w: Any = None) -> Any:
            return aten._embedding_bag_dense_backward(
                g, words, bag_of, sizes, none, 5, often, mode, w, padding
            )

        return function

    def whole(g: Any, words: Any, offsets: Any, bag_of: Any, sizes: Any) -> Any:
        return aten._embedding_bag_backward(
            g, words, offsets, bag_of, sizes, none, 5, False, 1, False, None, -1
        )

    given = (gradient, WORDS, bag_of, sizes)
    check_all(
        [
            ("sum", dense(0, False, -1), given),
            ("by frequency, padding", dense(0, True, 2), (gradient, twice, bag_of[:6], sizes)),
            ("mean", dense(1, False, 2), given),
            ("weights", dense(0, False, -1), (*given, torch.randn(7))),
            ("from offsets", whole, (gradient, WORDS, OFFSETS, none, sizes)),
        ]
    )


def test_dynamic_bags_and_a_gpu() -> None:
    table = torch.randn(5, 3)
    entries = torch.export.Dim("entries", max=1000)
    count = torch.export.Dim("count", max=1000)
    check(bags("mean"), table, WORDS, OFFSETS, dynamic=({}, {0: entries}, {0: count}))
    check(bags("max"), table, WORDS, OFFSETS, device="cuda")


@pytest.mark.parametrize("mode", [0, 1, 2], ids=["sum", "mean", "max"])
@pytest.mark.turns(3)
def test_other_results(mode: int) -> None:
    """The bag of each word, the sizes of bags, and where maxima are; of sums PyTorch has none."""
    # In the last case a bag has padding only.
    cases: list[Case] = []
    for offsets, last in ((OFFSETS, False), (torch.tensor([0, 2, 2, 7]), True)):
        for operator in (aten._embedding_bag, aten._embedding_bag_forward_only):
            for padding in (-1, 1):

                def bags_of(
                    table: Any, words: Any, offsets: Any, how: Any = (operator, last, padding)
                ) -> Any:
                    operator, last, padding = how
                    results = operator(
                        table, words, offsets, False, mode, False, None, last, padding
                    )
                    return results[: 2 if mode == 0 else 4]

                given = torch.randn(5, 3), WORDS, offsets
                cases.append((f"{operator} {last} {padding}", bags_of, given))
    check_all(cases)
    check(bags_of, torch.randn(5, 3), torch.tensor([0, 1, 1]), torch.tensor([0, 1, 3]))


def test_gradients_of_maxima() -> None:
    def gradient(table: Any, g: Any, words: Any, offsets: Any) -> Any:
        results = aten._embedding_bag(table, words, offsets, False, 2, False, None, False, 1)
        return aten._embedding_bag_dense_backward(
            g, words, *results[1:], 5, False, 2, None, padding_idx=1
        )

    table, g = torch.randn(5, 4), torch.randn(3, 4)
    check_all(
        [
            ("words", gradient, (table, g, WORDS, OFFSETS)),
            ("ties", gradient, (table * 0, g, WORDS, OFFSETS)),
            ("double, int32", gradient, (table.double(), g.double(), WORDS.int(), OFFSETS.int())),
            ("padding only", gradient, (table, g, WORDS[1:2], OFFSETS * 0)),
            ("no words", gradient, (table, g, WORDS[:0], OFFSETS * 0)),
        ]
    )
    entries = torch.export.Dim("entries", max=1000)
    check(gradient, table, g, WORDS, OFFSETS, dynamic=({}, {}, {0: entries}, {}))
    check(gradient, table, g, WORDS, OFFSETS, device="cuda")


@pytest.mark.each_device
def test_offsets_that_are_wrong(device: str) -> None:
    """Each is an error under ``raise``; otherwise nothing outside is read or written."""
    wrong = {
        (1, 2, 3): "the first offset|index -1",
        (0, 4, 2): "an offset",
        (0, 2, 9): "the last offset|index 9",
    }
    table = torch.arange(15.0).reshape(5, 3)
    program = export(bags("sum"), (table, WORDS, OFFSETS))
    for bounds in ("raise", "drop"):
        with tvm_scatter.options(bounds=bounds):
            machine = compile_for(from_exported_program(program), device)
        for offsets, error in wrong.items():
            given = table, WORDS, torch.tensor(offsets)
            if bounds == "raise":
                with pytest.raises(Exception, match=error):
                    run(machine, given, device)
            elif device == "cuda" or error != "an offset":
                [sums] = run(machine, given, device)
                assert sums.shape == (3, 3)
            else:
                with pytest.raises(Exception, match="must ascend"):
                    run(machine, given, device)
        [sums] = run(machine, (table, WORDS, OFFSETS), device)
        assert sums[:, 0].tolist() == [3, 0, 36]


def test_means_of_offsets_that_fall() -> None:
    """On GPUs no error: each mean is one of the words that were added up."""
    table = torch.arange(15.0).reshape(5, 3)
    program = export(bags("mean"), (table, WORDS, OFFSETS))
    with tvm_scatter.options(bounds="drop"):
        machine = compile_for(from_exported_program(program), "cuda")
    [means] = run(machine, (table, WORDS, torch.tensor([0, 4, 2])), "cuda")
    wanted = [table[WORDS[:4]].mean(0), torch.zeros(3), table[WORDS[2:]].mean(0)]
    assert_same(means, torch.stack(wanted))


@pytest.mark.on_cpu
def test_empty_bags_beside_full_ones(device: str) -> None:
    cases: list[Case] = []
    for counts in ([0], [1], [0, 2], [5, 0, 0, 2], [0, 0, 7], [1] * 7):
        ends = torch.tensor(counts).cumsum(0)
        given = torch.randn(5, 20), WORDS[: int(ends[-1])], ends - torch.tensor(counts)
        cases.append((str(counts), bags("sum"), given))
    check_all(cases, device=device)


def test_long_and_many_bags_take_no_sort() -> None:
    """A bag of more words than a task has, many of a few, and the implementation."""
    generator = torch.Generator().manual_seed(3)
    counts = torch.randint(0, 6, (3000,), generator=generator)
    counts[1500] = 9000
    words = torch.randint(0, 50, (int(counts.sum()),), generator=generator)
    table = torch.randint(-9, 9, (50, 36), generator=generator).float()
    given = table, words, counts.cumsum(0) - counts
    check_all([(mode, bags(mode), given) for mode in ("sum", "mean", "max")])
    module = from_exported_program(export(bags("sum"), given))
    found = tvm_scatter.explain(module, tvm.target.Target("llvm"))
    rows = [each.implementation for each in found if each.problem.data_dtype == "float32"]
    assert rows == ["ordered"]
    # The bag of each word is computed by nobody.
    text = tvm.compile(module, "llvm").as_text()
    assert "ordered" in text and "cumsum" not in text
