"""``embedding_bag`` as both exporters of torch.onnx write it, which is by loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
torch = pytest.importorskip("torch")

import tvm  # noqa: E402
from onnx import parser  # noqa: E402
from onnx_programs import write  # noqa: E402
from test_onnx_exporters import Machine, same  # noqa: E402
from test_onnx_idioms import HEAD, compare, expected  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

Array = np.ndarray[Any, Any]


class Bags(torch.nn.Module):
    """Bags of each mode, by offsets that end with the last one, or without it."""

    def __init__(self, padding: int | None) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.arange(60.0).reshape(12, 5) % 7 - 3)
        self.padding = padding

    def forward(self, *given: Any) -> Any:
        words, offsets, ended, weights = given
        bag = torch.nn.functional.embedding_bag
        results = [
            bag(words, self.table, offsets, mode="sum", per_sample_weights=weights),
            bag(words, self.table, ended, mode="mean", include_last_offset=True),
            bag(words, self.table, offsets, mode="max"),
        ]
        if self.padding is not None:
            results.append(bag(words, self.table, offsets, mode="mean", padding_idx=self.padding))
        return results


def given(count: int, bags: int) -> list[Any]:
    """Words, offsets of bags of which one is empty, the same with the last end, and weights."""
    offsets = torch.arange(bags) * count // bags
    offsets[1] = 0
    words = torch.arange(count) * 5 % 12
    return [words, offsets, torch.cat([offsets, torch.tensor([count])]), torch.rand(count)]


@pytest.mark.parametrize("exporter, opset, padding", [
    ("dynamo", 18, -2), ("legacy", 17, None),
    pytest.param("dynamo", 20, 5, marks=pytest.mark.exhaustive),
    pytest.param("legacy", 13, None, marks=pytest.mark.exhaustive),
])  # fmt: skip
def test_bags(exporter: str, opset: int, padding: int | None) -> None:
    module = Bags(padding).eval()
    names = ["words", "offsets", "ended", "weights"]
    open_axes = {name: {0: name} for name in names}
    made = write(module, tuple(given(9, 4)), names, exporter, opset, open_axes)
    machine = Machine(made, "llvm")
    for count, bags in ((9, 4), (13, 3)):
        inputs = given(count, bags)
        arrays = {name: each.numpy() for name, each in zip(names, inputs, strict=True)}
        results = machine([arrays[each.name] for each in made.graph.input])
        # The older exporter has minus infinity for the maxima of an empty bag, PyTorch 0.
        assert same(results, expected(made, arrays))
        checked = 2 if exporter == "legacy" else 4
        wanted = [each.detach().numpy() for each in module(*inputs)]
        assert same(results[:checked], wanted[:checked])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.turns(2)
def test_words_behind_the_last_bag(mode: str) -> None:
    """The newer exporter divides the last sum of a mean by all words from its first on."""

    class Ended(torch.nn.Module):
        def forward(self, table: Any, words: Any, ended: Any) -> Any:
            bag = torch.nn.functional.embedding_bag
            return bag(words, table, ended, mode=mode, include_last_offset=True)

    table = torch.arange(12.0).reshape(6, 2)
    inputs = (table, torch.arange(6), torch.tensor([0, 2, 4]))
    names = ["table", "words", "ended"]
    made = write(Ended().eval(), inputs, names, "dynamo", 18)
    arrays = {name: each.numpy() for name, each in zip(names, inputs, strict=True)}
    results = Machine(made, "llvm")([arrays[each.name] for each in made.graph.input])
    assert same(results, expected(made, arrays))
    assert same(results, [Ended()(*inputs).numpy()])


#: A loop over the parts of x, as the older exporter writes it. What is in braces varies.
LOOP = """(float[n, 2] x, int64[3] at, int64[k] words) => (float[m, c] y) {{
    yes = Constant<value = bool {{1}}>() zero = Constant<value = int64 {{0}}>()
    one = Constant<value = int64[1] {{1}}>() first = Constant<value = int64[1] {{0}}>()
    far = Constant<value = int64[1] {{{far}}}>()
    ends = Slice(at, one, far, first, one)
    some = Shape(ends) bags = Gather<axis = 0>(some, zero)
    y = Loop({trips}, yes) <body = g2 (int64 i, bool on) => (bool again, float[c] row) {{
        again = Cast<to = 9>(yes)
        from = Gather<axis = 0>(at, i) to = Gather<axis = 0>(ends, i)
        start = Unsqueeze(from, first) end = Unsqueeze(to, first)
        part = Slice(words, start, end, first) rows = Gather<axis = 0>(x, part)
        row = {reduce}<keepdims = 0>(rows, first)
    }}>
}}"""
SUMS = {"far": "9223372036854775807", "trips": "bags", "reduce": "ReduceSum"}


def test_rows_outside_of_all_bags_count_nowhere() -> None:
    x = np.arange(8, dtype="float32").reshape(4, 2)
    model = parser.parse_model(HEAD + LOOP.format(**SUMS))
    compare(model, {"x": x, "at": np.array([1, 3, 4]), "words": np.array([3, 1, 2, 3, 0])})


@pytest.mark.parametrize("other", [{"far": "2"}, {"trips": "zero"}, {"reduce": "ReduceL1"}])
def test_other_loops_are_refused(other: dict[str, str]) -> None:
    model = parser.parse_model(HEAD + LOOP.format(**{**SUMS, **other}))
    with pytest.raises(tvm.error.OpNotImplemented, match="not supported for frontend ONNX: Loop"):
        Machine(model, "llvm")
