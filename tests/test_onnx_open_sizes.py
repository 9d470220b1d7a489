"""ONNX operators of tensors whose sizes are equal, or large enough, at run time only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import parser  # noqa: E402
from test_onnx_idioms import HEAD, compare  # noqa: E402
from test_onnx_import import run  # noqa: E402

import tvm_scatter  # noqa: E402

#: What a model computes of x (n, k), v (m, k), p and q (n,) and of integers i (4,), and its type.
RESULTS = {
    "sum": ("float[a, b]", "sum = Add(x, v)"),
    "choice": ("float[a, b]", "less = Less(v, x) choice = Where(less, x, v)"),
    "equal": ("bool[a]", "equal = Equal(p, q)"),
    "square": ("int64[a]", "two = Constant<value = int64 {2}>() square = Pow(i, two)"),
    "cubes": ("int64[a]", "cubes = Pow(i, i)"),
    "columns": ("float[a, b]", "columns = Concat<axis = 1>(x, v)"),
    "rolled": ("float[a, b]", """
        by = Constant<value = int64[1] {-2}>() n = Shape<start = 0, end = 1>(x) at = Mod(by, n)
        left = Slice(x, zero, at, zero) right = Slice(x, at, n, zero)
        rolled = Concat<axis = 0>(right, left)"""),
    "sliced": ("float[a, b]", """
        from = Slice(i, zero, one) to = Slice(i, one, two1) part = Slice(x, from, to, zero)
        other = Slice(v, from, to, zero) sliced = Mul(part, other)"""),
    "beyond": ("float[a, b]", """
        l = Shape<start = 0, end = 1>(v) lines = Shape<start = 0, end = 1>(x) far = Add(l, lines)
        beyond = Slice(x, one, far, zero)"""),
    "sorted": ("float[a, b]", """
        rows = Shape<start = 0, end = 1>(x) sorted, places = TopK<axis = 0>(x, rows)"""),
    "least": ("int64[a, b]", """
        three = Constant<value = int64[1] {3}>() every = Shape<start = 0, end = 1>(x)
        some = Min(three, every) lows, least = TopK<axis = 0, largest = 0>(x, some)"""),
    "padded": ("float[a, b]", """
        some_pads = Constant<value = int64[2] {1, 2}>() none = Constant<value = int64[2] {0, 1}>()
        pads = Concat<axis = 0>(some_pads, none) padded = Pad(x, pads)"""),
    "around": ("float[a, b]", """
        way = Constant<value = int64[4] {0, 1, 0, 2}>() around = Pad<mode = "wrap">(x, way)"""),
}  # fmt: skip
CONSTANTS = """zero = Constant<value = int64[1] {0}>() one = Constant<value = int64[1] {1}>()
    two1 = Constant<value = int64[1] {2}>()"""
OPERANDS = "float[n, k] x, float[m, k] v, bool[n] p, bool[o] q, int64[4] i"


def model(names: list[str]) -> Any:
    results = ", ".join(f"{RESULTS[name][0]} {name}" for name in names)
    bodies = "\n".join(RESULTS[name][1] for name in names)
    return parser.parse_model(f"{HEAD} ({OPERANDS}) => ({results}) {{ {CONSTANTS} {bodies} }}")


def operands(rows: int = 5, others: int = 5) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "x": rng.standard_normal((rows, 4)).astype("float32"),
        "v": rng.standard_normal((others, 4)).astype("float32"),
        "p": rng.random(rows) > 0.5,
        "q": rng.random(others) > 0.5,
        "i": np.array([1, 4, -3, 5]),
    }


def test_agrees_with_onnxruntime() -> None:
    names = list(RESULTS)
    compare(model(names), operands(), names)


@pytest.mark.parametrize("name, said", [
    ("sum", r"Add: operand of shape \(m, k\) of size 3 in dimension 0 must have size 5 there"),
    ("choice", "Less: operand of shape"),
    ("columns", "Concat: operand of shape"),
])  # fmt: skip
def test_sizes_that_differ_at_run_time(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        run(model([name]), list(operands(5, 3).values()))


def test_more_than_there_are() -> None:
    text = "(float[n, 2] x, int64[1] k) => (float[a, b] y) { y, at = TopK<axis = %d>(x, k) }"
    made = parser.parse_model(HEAD + text % 0)
    x = np.arange(6, dtype="float32").reshape(3, 2)
    np.testing.assert_array_equal(run(made, [x, np.array([2])])[0], x[:0:-1])
    with pytest.raises(ValueError, match=r"TopK: the k largest of size 3 .* must have size 4"):
        run(made, [x, np.array([4])])
    fixed = "(float[3, 2] x) => (float[a, b] y) <int64[1] k = {3}> { y, at = TopK(x, k) }"
    with pytest.raises(
        tvm_scatter.ScatterError, match=r"TopK: k 3 does not fit axis 1 .* \(3, 2\)"
    ):
        run(parser.parse_model(HEAD + fixed), [x])


#: Operators whose vector of sizes, or of a tuple's components, has a length known at run time only.
OPEN = {
    "ScatterND": "(float[a, b, c] x, int64[n, k] i, float[n, c] u) => (float[a, b, c] y) "
    '{ y = ScatterND<reduction = "add">(x, i, u) }',
    "CenterCropPad": "(float[a, b] x, int64[k] s) => (float[p, q] y) { y = CenterCropPad(x, s) }",
    "TopK": "(float[5] x, int64[k] s) => (float[p] y) { y, at = TopK(x, s) }",
}


def test_components_of_tuples_and_sizes_whose_number_follows() -> None:
    x, u = (np.arange(n, dtype="float32") for n in (12, 4))
    tuples = np.array([[1, 0], [-1, 2]])
    models = {name: parser.parse_model(HEAD + text) for name, text in OPEN.items()}
    given = {"x": x.reshape(2, 3, 2), "i": tuples, "u": u.reshape(2, 2)}
    compare(models["ScatterND"], given)
    compare(models["CenterCropPad"], {"x": x.reshape(3, 4), "s": np.array([5, 2])})
    compare(models["TopK"], {"x": x[:5], "s": np.array([2])})
    given["i"] = tuples[:, :1]
    with pytest.raises(ValueError, match=r"ScatterND: indices of size 1 in dimension 1 must have"):
        run(models["ScatterND"], list(given.values()))
    with pytest.raises(ValueError, match=r"TopK: a vector of sizes of size 2 .* must have size 1"):
        run(models["TopK"], [x[:5], np.array([2, 2])])


@pytest.mark.parametrize("text, said", [
    ("float[a, b] x, int64[k] s) => (float[p, q] y) { y = Expand(x, s) }", "Expand: a vector"),
    ("float[a, b] x, int64[k] s) => (float[p, q] y) { y = Reshape(x, s) }", "Reshape: a vector"),
    ("int64[k] s) => (float[p, q] y) { y = ConstantOfShape(s) }", "ConstantOfShape: a vector"),
    ("float[1, 5, 5] x, int64[k] s) => (float[p, q, r] y) { y = Col2Im(x, s, s) }", "Col2Im: a"),
    ("float[a] x, int64[n, k] s) => (float[p] y) { y = GatherND(x, s) }", "GatherND: the last"),
    ("float[a] x, int64[n, k] s, float[n, a, m] u) => (float[a] y) { y = ScatterND(x, s, u) }",
     r"ScatterND: updates of shape \(n, a, m\) do not have the rank"),
])  # fmt: skip
def test_ranks_that_are_not_known(text: str, said: str) -> None:
    with pytest.raises(tvm_scatter.ScatterError, match=said):
        run(parser.parse_model(f"{HEAD} ({text}"), [])


@pytest.mark.parametrize("operator, inputs, what", [
    ("CumSum", "int64 k", "axis"),
    ("ReduceSum", "int64[1] k", "axes"),
])  # fmt: skip
def test_what_must_be_constant(operator: str, inputs: str, what: str) -> None:
    text = f"(float[3, 2] x, {inputs}) => (float[a, b] y) {{ y = {operator}(x, k) }}"
    with pytest.raises(tvm_scatter.ScatterError, match=f"{operator}: {what} is known at run time"):
        run(parser.parse_model(HEAD + text), [])


def test_a_branch_that_a_constant_chooses() -> None:
    """As the older exporter writes scatter_reduce, whose operands may be numbers."""
    text = """(float[n] x, int64[n] i) => (float[4] y) {
        data = Constant<value = float[4] {9, 9, 9, 9}>() never = Constant<value = bool {0}>()
        d, j = If(never) <
            then_branch = g2 () => (float[k] a, int64[l] b) {
                flat = Constant<value = int64[1] {-1}>() a = Reshape(data, flat)
                b = Reshape(i, flat) },
            else_branch = g3 () => (float[4] c, int64[n] e) { c = Identity(data) e = Identity(i) }>
        y = ScatterElements<reduction = "min">(d, j, x) }"""
    x, i = np.array([5, 3, 4], "float32"), np.array([1, 2, 1])
    compare(parser.parse_model(HEAD + text), {"x": x, "i": i})


def test_indices_as_many_as_a_mask_has() -> None:
    """Fewer than updates are no error of PyTorch's scatter, but one of ONNX."""
    text = """(float[6] x, bool[6] mask, float[3] v) => (float[6] y) {
        flat = Constant<value = int64[1] {-1}>() places = NonZero(mask)
        i = Reshape(places, flat) y = ScatterElements(x, i, v) }"""
    made = parser.parse_model(HEAD + text)
    x, v = np.zeros(6, "float32"), np.arange(1, 4, dtype="float32")
    mask = np.array([True, False, True, True, False, False])
    np.testing.assert_array_equal(run(made, [x, mask, v])[0], [1, 0, 2, 3, 0, 0])
    for wrong in (mask[::-1] & mask, ~mask & mask, mask | True):
        with pytest.raises(ValueError, match=r"ScatterElements: updates of size 3 .* must have"):
            run(made, [x, wrong, v])
