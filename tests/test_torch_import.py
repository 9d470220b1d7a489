"""PyTorch's scatter operators, imported by TVM's ``from_exported_program``, against PyTorch."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tvm  # noqa: E402
from cuda_on_cpu import real_gpu  # noqa: E402
from tally import Tally  # noqa: E402
from torch import _higher_order_ops as higher_order  # noqa: E402
from torch_harness import (  # noqa: E402
    Case,
    check,
    check_all,
    compile_for,
    export,
    run,
    through_tvm,
)
from tvm.relax.frontend.torch import from_exported_program  # noqa: E402

import tvm_scatter  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
DTYPES = (*FLOATS, *INTEGERS, torch.bool)


def each_dtype(*always: torch.dtype) -> Any:
    """All data types, of which some run by default; others do so in other tests."""
    return pytest.mark.parametrize(
        "dtype",
        [
            pytest.param(dtype, marks=() if dtype in always else pytest.mark.exhaustive)
            for dtype in DTYPES
        ],
        ids=str,
    )


REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")
aten = torch.ops.aten


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def values(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Random values of any type; small integers, so that products stay in range."""
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    low = 0 if dtype == torch.uint8 else -4
    return torch.randint(low, 5, shape).to(dtype)


def distinct(shape: tuple[int, ...], extent: int, axis: int) -> torch.Tensor:
    """Indices below ``extent`` that do not repeat along an axis."""
    lines = [extent if d == axis % len(shape) else n for d, n in enumerate(shape)]
    order = torch.rand(lines).argsort(dim=axis)
    return order.narrow(axis, 0, shape[axis]).contiguous()


# The scatter family


def boxes(rank: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]]:
    """Shapes of data, index and src, and an axis: every axis, boxes smaller in each dimension."""
    data = (4, 3, 5, 2, 3)[:rank]
    for axis in range(-rank, rank):
        yield data, data, data, axis
        smaller = tuple(max(n - 1, 1) for n in data)
        yield data, smaller, tuple(n + 1 for n in smaller), axis
        longer = tuple(7 if d == axis % rank else n for d, n in enumerate(data))
        yield data, longer, longer, axis


@pytest.mark.parametrize(
    "rank", (1, 3, *(pytest.param(rank, marks=pytest.mark.exhaustive) for rank in (2, 4, 5)))
)
def test_scatter_boxes(rank: int) -> None:
    cases: list[Case] = []
    for i, (data, index, src, axis) in enumerate(boxes(rank)):
        if (rank > 2 and axis < -1) or (rank > 3 and axis not in (0, 2, -1)):
            continue
        x, v = values(data), values(src)
        extent = data[axis]
        at = torch.randint(0, extent, index)
        cases.append(("scatter_add", lambda x, i, v, d=axis: x.scatter_add(d, i, v), (x, at, v)))
        how = (axis, REDUCTIONS[i % 5], i % 3 != 0)

        def reduce(x: Any, i: Any, v: Any, how: Any = how) -> Any:
            return x.scatter_reduce(how[0], i, v, how[1], include_self=how[2])

        cases.append((f"scatter_reduce {how}", reduce, (x, at, v)))
        if index[axis] <= extent:
            once = distinct(index, extent, axis)
            cases.append(("scatter", lambda x, i, v, d=axis: x.scatter(d, i, v), (x, once, v)))
            cases.append(("value", lambda x, i, d=axis: x.scatter(d, i, 2.5), (x, at)))
    check_all(cases)


@each_dtype(torch.float16, torch.int64, torch.bool)
@pytest.mark.turns(3)
def test_scatter_reductions(dtype: torch.dtype) -> None:
    at = torch.randint(0, 6, (9, 3))
    x, v = values((6, 4), dtype), values((9, 4), dtype)
    cases: list[Case] = [
        ("scatter_add", lambda x, i, v: x.scatter_add(0, i, v), (x, at, v)),
        ("value", lambda x, i: x.scatter(0, i, 1), (x, at)),
        ("add", lambda x, i, v: x.scatter(0, i, v, reduce="add"), (x, at, v)),
        ("multiply", lambda x, i, v: x.scatter(0, i, v, reduce="multiply"), (x, at, v)),
        ("value add", lambda x, i: x.scatter(0, i, 2, reduce="add"), (x, at)),
        ("value multiply", lambda x, i: x.scatter(0, i, 2, reduce="multiply"), (x, at)),
    ]
    for reduction, include_self in itertools.product(REDUCTIONS, (True, False)):
        if dtype == torch.bool and reduction == "mean":
            continue

        def reduce(x: Any, i: Any, v: Any, r: str = reduction, s: bool = include_self) -> Any:
            return x.scatter_reduce(0, i, v, r, include_self=s)

        cases.append((f"{reduction} {include_self}", reduce, (x, at, v)))
    check_all(cases)


def test_scatter_special_numbers() -> None:
    x = torch.tensor([1.0, float("nan"), float("inf"), -0.0, 5.0])
    v = torch.tensor([float("nan"), 3.0, float("-inf"), 2.0, float("nan"), 1.0])
    at = torch.tensor([0, 1, 2, 3, 4, 4])
    check_all(
        [
            (r, lambda x, i, v, r=r, s=s: x.scatter_reduce(0, i, v, r, include_self=s), (x, at, v))
            for r, s in itertools.product(REDUCTIONS, (True, False))
        ]
    )


def test_scatter_of_scalars_and_of_nothing() -> None:
    scalar, one, none = torch.tensor(3.0), torch.tensor([4.0]), torch.empty(0)
    zero, zeros = torch.tensor(0), torch.tensor([0, 0])
    nowhere = torch.empty(0, dtype=torch.int64)
    x, empty = values((3, 4)), values((0, 4))

    def scatter(x: Any, i: Any, v: Any) -> Any:
        return x.scatter(0, i, v)

    def add(x: Any, i: Any, v: Any) -> Any:
        return x.scatter_add(0, i, v)

    def mean(x: Any, i: Any, v: Any) -> Any:
        return x.scatter_reduce(-1, i, v, "mean", include_self=False)

    cases: list[Case] = []
    for f in (scatter, add, mean):
        cases += [
            ("0-d", f, (scalar, zero, scalar)),
            ("0-d, vector index", f, (scalar, torch.tensor([0]), one)),
            ("vector, 0-d index", f, (one, zero, scalar)),
            ("vector, 0-d src", f, (values((3,)), torch.tensor([0]), scalar)),
            ("empty index", f, (scalar, nowhere, none)),
            ("empty vector index on a matrix", f, (x, nowhere, none)),
            ("empty box", f, (x, nowhere.reshape(0, 4), values((2, 4)))),
            ("empty box, other axis", f, (x, nowhere.reshape(3, 0), values((3, 2)))),
            ("empty data", f, (empty, nowhere.reshape(0, 4), empty)),
        ]
    cases += [
        ("value on 0-d", lambda x, i: x.scatter(0, i, 7), (scalar, zero)),
        ("put 0-d", lambda x, i, v: x.put(i, v), (scalar, zero, scalar)),
        ("put vector into 0-d", lambda x, i, v: x.put(i, v, True), (scalar, zeros, values((2,)))),
        ("put nothing", lambda x, i, v: x.put(i, v), (x, nowhere, none)),
        ("index_fill 0-d", lambda x, i: x.index_fill(0, i, 2), (scalar, zero)),
        ("index_add 0-d", lambda x, i, v: x.index_add(0, i, v), (scalar, zero, scalar)),
        ("index_add of a row", lambda x, i, v: x.index_add(0, i, v), (x, zero, values((1, 4)))),
        (
            "index_add of a column",
            lambda x, i, v: x.index_add(-1, i, v, alpha=2),
            (x, zero, values((3, 1))),
        ),
        ("index_copy 0-d", lambda x, i, v: x.index_copy(0, i, v), (scalar, torch.tensor([0]), one)),
        ("index_add none", lambda x, i, v: x.index_add(0, i, v), (x, nowhere, empty)),
        ("index_put none", lambda x, i, v: aten.index_put(x, [i], v), (x, nowhere, empty)),
        ("index_fill none", lambda x, i: x.index_fill(1, i, 2), (x, nowhere)),
    ]
    check_all(cases)


# index_add and its kin


@each_dtype(torch.float32, torch.uint8)
@pytest.mark.turns(2)
def test_rows(dtype: torch.dtype) -> None:
    cases: list[Case] = []
    layouts = (((6, 3), 0), ((6,), 0), ((2, 6, 3), 1), ((2, 6, 3), -1))
    for shape, axis in layouts if dtype in (torch.float32, torch.int64) else layouts[:1]:
        extent = shape[axis]
        at = torch.randint(0, extent, (5,))
        once = distinct((2,), extent, 0)

        def rows(count: int, shape: Any = shape, axis: int = axis) -> torch.Tensor:
            sizes = [count if d == axis % len(shape) else n for d, n in enumerate(shape)]
            return values(tuple(sizes), dtype)

        x = values(shape, dtype)
        alpha = True if dtype == torch.bool else 2
        for i, wide in ((at, rows(5)), (at.int(), rows(5))):
            cases.append(
                ("index_add", lambda x, i, v, d=axis, a=alpha: x.index_add(d, i, v, alpha=a),
                 (x, i, wide))
            )  # fmt: skip
        for r, s in itertools.product(("prod", "mean", "amax", "amin"), (True, False)):
            if dtype == torch.bool or len(shape) != 2:
                continue

            def reduce(x: Any, i: Any, v: Any, d: int = axis, r: str = r, s: bool = s) -> Any:
                return x.index_reduce(d, i, v, r, include_self=s)

            cases.append((f"index_reduce {r} {s}", reduce, (x, at, rows(5))))
        cases += [
            ("index_copy", lambda x, i, v, d=axis: x.index_copy(d, i, v), (x, once, rows(2))),
            ("index_fill", lambda x, i, d=axis: x.index_fill(d, i, 1), (x, at)),
            ("index_fill, from the end", lambda x, i, d=axis: x.index_fill(d, i - 1, 1), (x, at)),
            ("index_fill tensor", lambda x, i, v, d=axis: x.index_fill(d, i, v),
             (x, at, values((), dtype))),
        ]  # fmt: skip
    check_all(cases)


def test_updates_that_are_parts_of_tuples() -> None:
    """Along the last axis, where lines may be turned into rows."""
    x, at = torch.randn(4, 12), torch.tensor([3, 0, 3, 8, 2, 5])
    wide = torch.zeros(4, 9)

    def written(x: Any) -> Any:
        y = x.clone()
        y.chunk(2, -1)[1].relu_()
        return y

    def added(x: Any, wide: Any, at: Any) -> Any:
        first, second = x.chunk(2, -1)
        return wide.index_add(1, at, first * second.sigmoid())

    def best(x: Any, wide: Any) -> Any:
        found, places = x[:, :9].topk(3, -1)
        return wide.scatter(1, places, found * 2)

    cases: list[Case] = [
        ("chunk written in place", written, (x,)),
        ("chunks", added, (x, wide, at)),
        ("top-k", best, (x, wide)),
        ("greatest", lambda x, y, i: y.index_add(1, i, x.max(1, True).values.expand(4, 6) * 2),
         (x, wide, at)),
        ("sorted", lambda x, y, i: y.index_copy(1, i[1:], x.sort(1)[0].exp()[:, :5]),
         (x, wide, at)),
        ("slice", lambda x: torch.slice_scatter(x, x.chunk(2, 1)[0].tanh(), 1, 4, 10), (x,)),
    ]  # fmt: skip
    check_all(cases)


# index_put


def index_lists(masks: int) -> Iterator[tuple[list[str], list[torch.Tensor | None]]]:
    """Every arrangement of None, integers and at most one mask over the axes of a (3, 4, 5)."""
    data = (3, 4, 5)
    for length in (1, 2, 3):
        for kinds in itertools.product("NIM", repeat=length):
            if kinds.count("M") != masks or set(kinds) == {"N"}:
                continue
            picked = itertools.cycle(((2,), (2, 1)))
            indices: list[torch.Tensor | None] = []
            for kind, extent in zip(kinds, data, strict=False):
                if kind == "N":
                    indices.append(None)
                elif kind == "M":
                    indices.append(torch.arange(extent) % 2 == 0 if extent < 5 else MASK5)
                else:
                    shape = (2,) if masks else next(picked)
                    index = distinct((2,), extent, 0).reshape(shape)
                    indices.append(index - extent if len(indices) % 2 else index)
            yield list(kinds), indices


MASK5 = torch.tensor([False, True, False, False, True])


def put_cases(masks: int) -> Iterator[Case]:
    """``index_put`` with every list of indices, values of several shapes, accumulate both ways."""
    x = values((3, 4, 5))
    for kinds, indices in index_lists(masks):
        given = [index for index in indices if index is not None]
        selected = tuple(aten.index(x, indices).shape)
        shapes = {selected, (), selected[1:], (1, *selected[1:]), selected[-1:]}
        for n, shape in enumerate(sorted(shapes, key=len)):
            accumulate = (n + len(kinds)) % 2 == 0

            def put(x: Any, v: Any, *given: Any, kinds: Any = kinds, add: bool = accumulate) -> Any:
                rest = iter(given)
                return aten.index_put(x, [None if k == "N" else next(rest) for k in kinds], v, add)

            name = f"{''.join(kinds)} {shape} accumulate={accumulate}"
            yield name, put, (x, values(shape), *given)


@pytest.mark.turns(4)
@pytest.mark.parametrize("masks", (0, 1))
@pytest.mark.parametrize(
    "part", (0, 1, *(pytest.param(part, marks=pytest.mark.exhaustive) for part in (2, 3)))
)
def test_index_put(masks: int, part: int) -> None:
    check_all(list(put_cases(masks))[part::4])


@each_dtype(torch.float16, torch.int64, torch.bool)
@pytest.mark.turns(3)
def test_index_put_dtypes(dtype: torch.dtype) -> None:
    x, at, mask = values((5, 3), dtype), torch.tensor([0, -1, 0]), torch.rand(5, 3) > 0.5
    rows = values((1, 3), dtype).expand(3, 3)
    check_all(
        [
            ("update", lambda x, i, v: aten.index_put(x, [i], v), (x, at, rows)),
            ("int32", lambda x, i, v: aten.index_put(x, [i], v), (x, at.int(), rows)),
            ("add", lambda x, i, v: aten.index_put(x, [i], v, True), (x, at, rows)),
            ("mask", lambda x, m, v: aten.index_put(x, [m], v), (x, mask, values((), dtype))),
            ("add at a mask", lambda x, m, v: aten.index_put(x, [m], v, True),
             (x, mask, values((int(mask.sum()),), dtype))),
            ("put", lambda x, i, v: x.put(i, v), (x, torch.tensor([3, -1]), values((2,), dtype))),
            ("put add", lambda x, i, v: x.put(i, v, True), (x, at, values((3,), dtype))),
            ("masked_scatter", lambda x, m, v: x.masked_scatter(m, v),
             (x, mask, values((4, 4), dtype))),
            ("masked_fill", lambda x, m: x.masked_fill(m, 1), (x, mask)),
            ("select_scatter", lambda x, v: x.select_scatter(v, 0, -2), (x, values((3,), dtype))),
            ("slice_scatter", lambda x, v: x.slice_scatter(v, 0, -4, None, 2),
             (x, values((2, 3), dtype))),
            ("diagonal_scatter", lambda x, v: x.diagonal_scatter(v, -1), (x, values((3,), dtype))),
        ]
    )  # fmt: skip


def test_masks_of_several_axes() -> None:
    x, mask = values((3, 4, 5)), torch.rand(3, 4) > 0.5
    late, count = torch.rand(4, 5) > 0.5, int(mask.sum())
    nothing = torch.zeros(3, 4, dtype=torch.bool)

    def put(*kinds: str, add: bool = False) -> Callable[..., Any]:
        def function(x: Any, v: Any, *given: Any) -> Any:
            rest = iter(given)
            return aten.index_put(x, [None if k == "N" else next(rest) for k in kinds], v, add)

        return function

    check_all(
        [
            ("leading", put("M"), (x, values((count, 5)), mask)),
            ("leading, broadcast", put("M", add=True), (x, values((5,)), mask)),
            ("trailing", put("N", "M"), (x, values((3, int(late.sum()))), late)),
            ("trailing, broadcast", put("N", "M"), (x, values((3, 1)), late)),
            ("with an integer", put("M", "I"), (x, values((count,)), mask, torch.tensor(-2))),
            ("with integers", put("M", "I", add=True),
             (x, values(()), mask, torch.randint(0, 5, (count,)))),
            ("true nowhere", put("M"), (x, values((0, 5)), nothing)),
            ("whole", put("M"), (x, values(()), x > 0)),
            ("bytes", put("M"), (x, values((count, 5)), mask.to(torch.uint8))),
        ]
    )  # fmt: skip


# Views


def test_views() -> None:
    x = values((4, 3, 5))
    cases: list[Case] = []
    for d, at in itertools.product((0, 1, -1), (0, -1, 2)):
        shape = tuple(n for axis, n in enumerate(x.shape) if axis != d % 3)
        cases.append(
            ("select", lambda x, v, d=d, i=at: x.select_scatter(v, d, i), (x, values(shape)))
        )
    for start, end, step in ((None, None, 1), (1, 3, 1), (-3, -1, 1), (0, 100, 2), (2, 2, 1)):
        for d in (0, 2):
            part = x[(slice(None),) * d + (slice(start, end, step),)]

            def put(x: Any, v: Any, d: int = d, s: Any = (start, end, step)) -> Any:
                return x.slice_scatter(v, d, *s)

            cases.append((f"slice {start} {end} {step}", put, (x, values(tuple(part.shape)))))
    for offset, (a, b) in itertools.product((0, 1, -2, 9), ((0, 1), (0, 2), (2, 1))):
        part = x.diagonal(offset, a, b)

        def write(x: Any, v: Any, o: int = offset, a: int = a, b: int = b) -> Any:
            return x.diagonal_scatter(v, o, a, b)

        cases.append((f"diagonal {offset} {a} {b}", write, (x, values(tuple(part.shape)))))
    check_all(cases)
    check_all(cases[::4], run_ep_decomposition=False)


STATEMENTS = (
    "x[1] = row",
    "x[-1] = row",
    "x[:, 1] += column",
    "x[:, -1] *= column",
    "x[1, 2] = 7",
    "x[1:3, ::2] = row[:3]",
    "x[i] = row",
    "x[i - 4] += row",
    "x[:, i] += column[:, None]",
    "x[:, i - 2] = 0",
    "x[i, i] += 1",
    "x[..., i] = column[:, None]",
    "x[None, i] = row",
    "x[m] = 0",
    "x[m] += 1",
    "x[m] = x[m] * row",
    "x[m, 1] = 3",
    "x[m, 1:3] = row[:2]",
    "x[m, i] = 2",
    "x[x > 0] = 5",
    "x[x > 0] *= -1",
    "x[x < 0] = x[x < 0].exp()",
    "x.fill_diagonal_(3.0)",
    "x.index_add_(0, i, row.expand(2, 5), alpha=0.5)",
    "x.index_copy_(0, i, row.expand(2, 5))",
    "x.index_fill_(1, i, 2)",
    "x.scatter_(1, i[:, None], 4)",
    "x.scatter_add_(0, i[:, None], row[None, :1].expand(2, 1))",
    "x.masked_fill_(m[:, None], 2)",
    "x.masked_scatter_(m[:, None], x * 2)",
    "x.put_(i, row[:2], accumulate=True)",
    "x[0][i] = 1",
    "x[:, :3][m] = 1",
    "x.t()[i] = column",
    "x.view(-1)[i] = 1",
    "x.diagonal()[1:] = 1",
)


def statement(text: str) -> Case:
    """A case that runs one statement on a copy of ``x``."""
    names: dict[str, Any] = {}
    body = f"def f(x, row, column, i, m):\n    x = x.clone()\n    {text}\n    return x"
    exec(body, {"torch": torch}, names)
    mask = torch.tensor([True, False, True, False])
    operands = (values((4, 5)), values((5,)), values((4,)), torch.tensor([2, 0]), mask)
    return text, names["f"], operands


@pytest.mark.parametrize("part", range(3))
@pytest.mark.turns(3)
def test_assignment_in_a_model(part: int) -> None:
    check_all([statement(text) for text in STATEMENTS[part::3]])


def test_assignment_without_decomposition() -> None:
    check_all([statement(text) for text in STATEMENTS[::2]], run_ep_decomposition=False)


def test_a_transpose_without_decomposition() -> None:
    check(lambda x: (x.t(), x[0].t() + 1), values((4, 5)), run_ep_decomposition=False)


def test_what_is_written_without_decomposition_is_kept() -> None:
    """Views that were taken before change with what they view; inputs come back."""

    def views(x: Any, i: Any, row: Any) -> Any:
        y = x * 1
        flat, part = y.view(-1), y[1:3]
        y[i] = row
        part.index_add_(0, i // 2, torch.stack([row, row]))
        return flat, y.transpose(0, 1)

    def writes(x: Any, i: Any, row: Any) -> Any:
        x.index_copy_(0, i, torch.stack([row, row * 2]))
        return row + 1

    operands = (values((4, 5)), torch.tensor([2, 0]), values((5,)))
    check(views, *operands, run_ep_decomposition=False)
    changed = operands[0].clone()
    returned = writes(changed, *operands[1:])
    results = through_tvm(writes, operands, run_ep_decomposition=False)
    for result, expected in zip(results, (returned, changed), strict=True):
        assert torch.equal(result, expected)


def test_assignment_to_a_buffer() -> None:
    class Cache(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(2, 6, 3))

        def forward(self, row: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            cache = self.cache.index_copy(1, at, row)
            cache[:, 0] = 1
            return cache

    check(Cache(), values((2, 1, 3)), torch.tensor([4]))


# The rest


def test_embedding_gradient() -> None:
    gradient, words = values((2, 3, 4)), torch.tensor([[1, 5, 1], [0, 5, 5]])

    def backward(padding: int, by_frequency: bool) -> Callable[..., Any]:
        return lambda g, w: aten.embedding_dense_backward(g, w, 7, padding, by_frequency)

    cases: list[Case] = [
        (f"padding {padding}, by frequency {often}", backward(padding, often), (gradient, w))
        for padding, often in ((-1, False), (5, False), (5, True), (0, True))
        for w in (words, words.int())
    ]
    check_all(cases)
    check_all(cases[::3], run_ep_decomposition=False)


def test_histogram() -> None:
    """Elements on an edge between bins, outside of all bins, and all equal are among them."""
    elements = torch.randint(-8, 9, (3, 40)) / 8
    cases: list[Case] = [
        (f"{tuple(x.shape)} {x.dtype} {ends}", lambda x, e=ends: torch.histc(x, 8, *e), (x,))
        for x in (elements, elements.double(), elements[0, :1], elements[:0], elements.bfloat16())
        for ends in ((0, 1), (-0.5, 0.5), (0, 0), (2, 2))
        if x.numel() or ends[0] != ends[1]
    ]
    cases.append(("not a number", lambda x: torch.histc(x, 4, 0, 1), (elements / elements,)))
    # Here the least and the difference have a sum that is rounded to less than the greatest.
    ends = torch.tensor([-1 / 3, 0.0, 0.01])
    least, greatest = ends[[0, 2]]
    assert least + (greatest - least) < greatest
    cases.append(("rounded width", lambda x: torch.histc(x, 2), (ends,)))
    check_all(cases)


def operator_cases() -> list[Case]:
    """One case for each operator, for checks that go over all."""
    x, i = values((4, 5)), torch.tensor([2, 0])
    box, v = torch.tensor([[0, 1], [3, 3]]), values((2, 5))
    mask = torch.rand(4, 5) > 0.5
    return [
        ("scatter", lambda x, i, v: x.scatter(1, i, v), (x, torch.tensor([[0, 1]]), v)),
        ("scatter_add", lambda x, i, v: x.scatter_add(0, i, v), (x, box, v)),
        ("scatter_reduce", lambda x, i, v: x.scatter_reduce(0, i, v, "mean"), (x, box, v)),
        ("index_add", lambda x, i, v: x.index_add(0, i, v, alpha=3), (x, i, v)),
        ("index_copy", lambda x, i, v: x.index_copy(0, i, v), (x, i, v)),
        ("index_fill", lambda x, i: x.index_fill(0, i - 4, 2.0), (x, i)),
        ("index_reduce", lambda x, i, v: x.index_reduce(0, i, v, "amax"), (x, i, v)),
        ("index_put", lambda x, i, v: aten.index_put(x, [i], v, True), (x, i, v)),
        ("_unsafe_index_put", lambda x, i, v: aten._unsafe_index_put(x, [i], v), (x, i, v)),
        ("masked_scatter", lambda x, m, v: x.masked_scatter(m, v), (x, mask, values((20,)))),
        ("put", lambda x, i, v: x.put(i, v), (x, i, values((2,)))),
        ("select_scatter", lambda x, v: x.select_scatter(v, 0, 1), (x, values((5,)))),
        ("slice_scatter", lambda x, v: x.slice_scatter(v, 0, 1, 3), (x, v)),
        ("diagonal_scatter", lambda x, v: x.diagonal_scatter(v), (x, values((4,)))),
    ]


def test_without_decomposition() -> None:
    check_all(operator_cases(), run_ep_decomposition=False)


@pytest.mark.parametrize("kind", [tvm_scatter.ScatterError, AssertionError])
def test_all_unsupported_operators_are_named(kind: type[Exception]) -> None:
    def function(x: Any) -> Any:
        return torch.fft.fft(x).real, torch.linalg.svd(x)[1], torch.linalg.svdvals(x), x * 2

    program = export(function, [torch.randn(4, 4)])
    with pytest.raises(kind, match="Unsupported function types") as caught:
        from_exported_program(program)
    assert "'_linalg_svd.default' (of linalg_svd, linalg_svdvals)" in str(caught.value)
    assert str(caught.value).count("_linalg_svd.default") == 1
    assert "'_fft_r2c.default'" in str(caught.value)
    assert "mul" not in str(caught.value)


def test_checks_with_effects_are_named_as_the_model_does() -> None:
    program = export(lambda x: (torch.linalg.inv(x), torch.inverse(x)), [torch.eye(4)])
    with pytest.raises(tvm_scatter.ScatterError) as caught:
        from_exported_program(program)
    assert "'linalg_inv_ex.default' (of inverse, linalg_inv)" in str(caught.value)
    assert "with_effects" not in str(caught.value)


@pytest.mark.parametrize("decompose", [True, False])
@pytest.mark.turns(2)
def test_zero_times_infinity_is_no_number(decompose: bool) -> None:
    def sums(x: Any, i: Any) -> Any:
        rows = x.index_add(0, i, x[:1], alpha=0), x.index_add(0, i, x[:1], alpha=-0.0)
        half = x.half().index_add(0, i, x[:1].half(), alpha=0)
        return (*rows, half, x.add(x, alpha=0), x.sub(x, alpha=0.0), torch.rsub(x, x, alpha=0))

    x = torch.tensor([float("inf"), 1.0, 2.0])
    check(sums, x, torch.tensor([1]), run_ep_decomposition=decompose)


LOOPS: dict[str, Callable[[Any], Any]] = {
    "scan": lambda x: higher_order.scan(lambda c, row: (c + row, c * 1), torch.zeros(5), x),
    "while_loop": lambda x: higher_order.while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x)
    ),
    "map_impl": lambda x: higher_order.map(lambda row: row + 1, x),
}


@pytest.mark.turns(2)
@pytest.mark.parametrize("decompose", [True, False])
@pytest.mark.parametrize("name", LOOPS)
def test_loops_are_named(name: str, decompose: bool) -> None:
    program = export(LOOPS[name], [values((4, 5))])
    with pytest.raises(tvm_scatter.ScatterError, match=rf"\['{name}'\]: loops are not imported"):
        from_exported_program(program, run_ep_decomposition=decompose)


def test_converters_passed_by_hand() -> None:
    tvm_scatter.uninstall()
    try:
        with pytest.raises(AssertionError, match="Unsupported function types"):
            _, function, inputs = operator_cases()[1]
            through_tvm(function, inputs)
        converters = tvm_scatter.torch_converters()
        check_all(operator_cases(), custom_convert_map=converters, run_ep_decomposition=False)
        texts = ("x[i] = row", "x.index_fill_(1, i, 2)", "x[:, i - 5] += 1")
        inplace = [statement(text) for text in texts]
        check_all(inplace, custom_convert_map=converters, run_ep_decomposition=False)
    finally:
        tvm_scatter.install()


def test_switched_off_and_uninstalled() -> None:
    from tvm.relax.frontend.torch import exported_program_translator as translator

    importer = translator.ExportedProgramImporter
    ours = importer.create_convert_map
    with tvm_scatter.options(enabled=False):
        assert "scatter_add.default" not in importer().convert_map
    assert "scatter_add.default" in importer().convert_map
    tvm_scatter.uninstall()
    stock = importer.create_convert_map
    tvm_scatter.install()
    tvm_scatter.install()
    assert stock is not ours and stock.__module__ == translator.__name__
    tvm_scatter.uninstall()
    assert importer.create_convert_map is stock
    tvm_scatter.install()


def run_alone(script: str) -> None:
    """Run a script in a Python process of its own that finds the package as this one does."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)


def test_import_without_the_frameworks() -> None:
    run_alone("""
import sys
sys.modules["torch"] = sys.modules["onnx"] = None
import tvm_scatter
tvm_scatter.uninstall()
tvm_scatter.install()
""")


@pytest.mark.exhaustive
def test_importers_are_extended_when_they_are_imported() -> None:
    """As in this process, which has loaded them after the package; here nothing else has been."""
    run_alone("""
import sys, tvm_scatter
name = "tvm.relax.frontend.torch.exported_program_translator"
assert name not in sys.modules
from tvm.relax.frontend.torch import from_exported_program
assert "scatter_add.default" in sys.modules[name].ExportedProgramImporter().convert_map
""")


def test_a_model_without_indices_is_left_alone() -> None:
    def model(x: Any) -> Any:
        return (x[1:] * 2).sum(0).as_strided((2, 2), (2, 1))

    inputs = (values((4, 4)),)
    ours = from_exported_program(export(model, inputs))
    with tvm_scatter.options(enabled=False):
        stock = from_exported_program(export(model, inputs))
    tvm.ir.assert_structural_equal(ours, stock)


def test_targets_without_a_strategy() -> None:
    x, i = values((3, 4, 5)), torch.tensor([0, 2])
    once = torch.tensor([[0, 1, 2, 0]])
    cases: list[Case] = [
        ("value", lambda x, i: x.scatter(0, i, 1.5), (values((3, 4)), once)),
        ("slice", lambda x, v: x.slice_scatter(v, 1, 1, 4, 2), (x, values((3, 2, 5)))),
        ("adjacent", lambda x, i, v: aten.index_put(x, [None, i - 3], v, True),
         (x, i, values((2, 5)))),
        ("apart", lambda x, i, v: aten.index_put(x, [i - 3, None, i], v), (x, i, values((2, 4)))),
    ]  # fmt: skip
    for _, function, inputs in cases:
        module = from_exported_program(export(function, inputs))
        tvm.compile(module, tvm.target.Target("c"))
        with tvm.target.Target("c"):
            module = tvm.relax.transform.LegalizeOps()(module)
        (actual,) = run(compile_for(module), inputs)
        torch.testing.assert_close(actual, function(*inputs))
    _, function, inputs = operator_cases()[2]
    with pytest.raises(tvm_scatter.ScatterError, match="scatter_reduce: no implementation for"):
        tvm.compile(from_exported_program(export(function, inputs)), tvm.target.Target("c"))


# Symbolic sizes

K = torch.export.Dim("k", min=2, max=4096)
N = torch.export.Dim("n", min=2, max=4096)


@pytest.mark.parametrize("name, function, make, dynamic", [
    ("scatter_add", lambda x, i, v: x.scatter_add(0, i, v),
     lambda n, k: (values((n, 3)), torch.randint(0, n, (k, 3)), values((k, 3))),
     ({0: N}, {0: K}, {0: K})),
    ("scatter_reduce", lambda x, i, v: x.scatter_reduce(0, i, v, "amax", include_self=False),
     lambda n, k: (values((n,)), torch.randint(0, n, (k,)), values((k,))),
     ({0: N}, {0: K}, {0: K})),
    ("scatter value", lambda x, i: x.scatter(0, i, x.shape[0]),
     lambda n, k: (values((n,)), torch.randint(0, n, (k,))),
     ({0: N}, {0: K})),
    ("index_add", lambda x, i, v: x.index_add(1, i, v, alpha=2),
     lambda n, k: (values((3, n)), torch.randint(0, n, (k,)), values((3, k))),
     ({1: N}, {0: K}, {1: K})),
    ("index_put", lambda x, i, v: aten.index_put(x, [i, None, i], v, True),
     lambda n, k: (values((n, 2, n)), torch.randint(0, n, (k,)), values((k, 2))),
     ({0: N, 2: N}, {0: K}, {0: K})),
    ("mask", lambda x, m, v: aten.index_put(x, [m], v),
     lambda n, k: (values((n, 3)), torch.rand(n) > 0.5, values((3,))),
     ({0: N}, {0: N}, None)),
    ("masked_scatter", lambda x, m, v: x.masked_scatter(m, v),
     lambda n, k: (values((n, 3)), torch.rand(n, 3) > 0.5, values((n, 3))),
     ({0: N}, {0: N}, {0: N})),
    ("put", lambda x, i, v: x.put(i, v, True),
     lambda n, k: (values((n, 3)), torch.randint(0, n, (k,)), values((k,))),
     ({0: N}, {0: K}, {0: K})),
    ("assignment", lambda x, v: torch.cat([x, x]).slice_scatter(v, 0, x.shape[0]),
     lambda n, k: (values((n, 3)), values((n, 3))),
     ({0: N}, {0: N})),
    ("select", lambda x, v: x.select_scatter(v, 0, -1),
     lambda n, k: (values((n, 3)), values((3,))),
     ({0: N}, None)),
])  # fmt: skip
@pytest.mark.turns(2)
def test_symbolic_sizes(name: str, function: Any, make: Any, dynamic: Any) -> None:
    torch.manual_seed(0)
    module = from_exported_program(export(function, make(5, 7), dynamic))
    machine = compile_for(module)
    for n, k in ((5, 7), (2, 40), (9, 2)):
        inputs = make(n, k)
        (actual,) = run(machine, inputs)
        torch.testing.assert_close(actual, function(*inputs))


def test_dynamic_sizes_that_do_not_fit() -> None:
    """PyTorch finds an index that is larger than its source when it is called; so do we.

    Without what PyTorch has noted of the sizes, the operator finds it.
    """
    scatter_add = lambda data, index, source: data.scatter_add(1, index, source)  # noqa: E731

    def make(k: int, j: int) -> list[torch.Tensor]:
        return [values((4, 9)), torch.randint(0, 9, (4, k)), values((4, j))]

    dynamic = (None, {1: torch.export.Dim("k", max=99)}, {1: torch.export.Dim("j", max=99)})
    program = export(scatter_add, make(5, 6), dynamic)
    found = []
    for _ in range(2):
        machine = compile_for(from_exported_program(program))
        for k, j in ((5, 5), (5, 6), (1, 2)):
            inputs = make(k, j)
            torch.testing.assert_close(run(machine, inputs)[0], scatter_add(*inputs))
        with pytest.raises(ValueError) as error:
            run(machine, make(5, 4))
        found.append(str(error.value))
        program._guards_code = []
    assert "but inputs_1.shape[1] is 5 and inputs_2.shape[1] is 4" in found[0]
    assert "scatter_add: index of size 5 in dimension 1 is larger" in found[1]


# Bad input


def changed(operator: str, argument: str, value: Any) -> Any:
    """A program with an argument that PyTorch itself would not have let through.

    A tensor takes the place of the input behind the argument; other values go into the call.
    """
    _, function, inputs = next(case for case in operator_cases() if case[0] == operator)
    program = export(function, inputs)
    (call,) = (node for node in program.graph.nodes if node.op == "call_function")
    names = [entry.name for entry in call.target._schema.arguments]
    position = names.index(argument)
    if not isinstance(value, torch.Tensor):
        if position < len(call.args):
            call.update_arg(position, value)
        else:
            call.update_kwarg(argument, value)
        return program
    node = call.args[position]
    node = node[0] if isinstance(node, list | tuple) else node
    node.meta["val"] = node.meta["tensor_meta"] = value
    return program


@pytest.mark.parametrize("operator, argument, value, message", [
    ("scatter_add", "dim", 7, "scatter_add: dim 7 is out of range"),
    ("scatter_add", "src", values((2, 1)), "scatter_add: index .* larger than updates"),
    ("scatter_add", "src", values((2, 5), torch.int64), "scatter_add: updates of type int64"),
    ("scatter_reduce", "reduce", "median", "scatter_reduce: unknown reduction 'median'"),
    ("index_add", "dim", 1, r"index_add: source of shape \(2, 5\) does not match"),
    ("index_add", "index", torch.tensor([[1]]), "index_add: index must be a vector"),
    ("index_add", "index", torch.tensor([1.0, 2.0]), "index_add: .* index of type float32"),
    ("index_copy", "dim", -3, "index_copy: dim -3 is out of range"),
    ("index_put", "values", values((3, 5)), "index_put: shapes .* do not broadcast"),
    ("index_put", "values", values((2, 5), torch.int64), "index_put: values of type int64"),
    ("index_put", "indices", values((3,)) > 0, "index_put: a mask of shape .* does not fit"),
    ("index_put", "indices", values((2,)), "index_put: an index of type float32"),
    ("put", "source", values((2, 2)), "put: source of shape .* the same number of elements"),
    ("masked_scatter", "mask", values((3, 5)) > 0, "masked_scatter: shapes .* do not broadcast"),
    ("masked_scatter", "mask", values((4, 5)), "masked_scatter: mask of type float32"),
    ("select_scatter", "index", 9, "select_scatter: index 9 is out of range"),
    ("slice_scatter", "end", 4, r"slice_scatter: src of shape \(2, 5\) does not match"),
    ("slice_scatter", "step", 0, "slice_scatter: step 0 must be positive"),
    ("diagonal_scatter", "offset", 2, "diagonal_scatter: src of shape"),
    ("diagonal_scatter", "dim2", 0, "diagonal_scatter: dim1 and dim2 must differ"),
])  # fmt: skip
def test_bad_input(operator: str, argument: str, value: Any, message: str) -> None:
    program = changed(operator, argument, value)
    with pytest.raises(tvm_scatter.ScatterError, match=message):
        compile_for(from_exported_program(program, run_ep_decomposition=False))


@pytest.mark.parametrize("function, index, message", [
    (lambda x, i, v: x.scatter_add(0, i[:, None].expand(2, 5), v), -1, "scatter_add: index -1"),
    (lambda x, i, v: x.index_add(0, i, v), 4, "index_add: index 4 at position"),
    (lambda x, i, v: x.index_add(0, i, v), -1, "index_add: index -1 at position"),
    (lambda x, i, v: x.index_copy(0, i, v), -1, "index_copy: index -1"),
    (lambda x, i, v: x.index_fill(0, i, 1.0), -5, "index_fill: index -5"),
    (lambda x, i, v: aten.index_put(x, [i], v), -5, "index_put: index -5"),
    (lambda x, i, v: x.put(i, v[0, :2]), 20, "put: index 20 .* extent 20"),
])  # fmt: skip
def test_indices_out_of_bounds(function: Any, index: int, message: str) -> None:
    x, v = values((4, 5)), values((2, 5))
    machine = compile_for(from_exported_program(export(function, (x, torch.tensor([0, 1]), v))))
    with pytest.raises(IndexError, match=message):
        run(machine, (x, torch.tensor([0, index]), v))
    good = torch.tensor([0, 3])
    torch.testing.assert_close(run(machine, (x, good, v))[0], function(x, good, v))


def test_two_masks_are_refused() -> None:
    x, rows = values((4, 5)), torch.tensor([True, False, True, False])
    columns = torch.tensor([True, False, True, False, False])
    with pytest.raises(tvm_scatter.ScatterError, match="index_put: 2 boolean masks"):
        through_tvm(lambda x, a, b: aten.index_put(x, [a, b], x[0, 0]), (x, rows, columns))


# Models


@pytest.mark.parametrize(
    ("symbolic", "name"),
    [
        (False, "SAGEConv"),
        (False, "GINConv"),
        (True, "GCNConv"),
        (True, "GATConv"),
        *(
            pytest.param(*other, marks=pytest.mark.exhaustive)
            for other in (
                (False, "GCNConv"),
                (False, "GATConv"),
                (True, "SAGEConv"),
                (True, "GINConv"),
            )
        ),
    ],
)
@pytest.mark.turns(4)
def test_graph_networks(name: str, symbolic: bool) -> None:
    nn = pytest.importorskip("torch_geometric.nn")
    layer = nn.GINConv(torch.nn.Linear(8, 4)) if name == "GINConv" else getattr(nn, name)(8, 4)
    dynamic = (None, {1: torch.export.Dim("edges", min=2, max=9999)}) if symbolic else None
    with torch.no_grad():
        check(layer.eval(), values((20, 8)), torch.randint(0, 20, (2, 50)), dynamic=dynamic)


# PyTorch's own samples

OPERATORS = (
    "scatter", "scatter_add", "scatter_reduce", "index_put", "index_add", "index_copy",
    "index_fill", "index_reduce", "masked_scatter", "put", "select_scatter", "slice_scatter",
    "diagonal_scatter",
)  # fmt: skip


def samples(dtype: torch.dtype) -> Iterator[Case]:
    """The samples by which PyTorch tests its scatter operators."""
    pytest.importorskip("expecttest")
    from torch.testing._internal.common_methods_invocations import op_db

    for operator in op_db:
        if operator.name not in OPERATORS or dtype not in operator.dtypes:
            continue
        for sample in operator.sample_inputs("cpu", dtype):
            inputs: list[torch.Tensor] = []
            parts = [_template(value, inputs) for value in (sample.input, *sample.args)]
            named = {name: _template(value, inputs) for name, value in sample.kwargs.items()}

            call = partial(_call, operator.op, parts, named)
            name = f"{operator.name} {operator.variant_test_name} {dtype}"
            yield name, call, [tensor.detach() for tensor in inputs]


def _call(operator: Any, parts: Any, named: Any, *given: Any) -> Any:
    rest = iter(given)
    arguments = [part(rest) for part in parts]
    return operator(*arguments, **{name: part(rest) for name, part in named.items()})


def _template(value: Any, inputs: list[torch.Tensor]) -> Callable[[Iterator[Any]], Any]:
    """Put the tensors of an argument on a list; the result puts others in their place."""
    if isinstance(value, torch.Tensor):
        inputs.append(value)
        return next
    if isinstance(value, tuple | list):
        parts = [_template(part, inputs) for part in value]
        return lambda rest: type(value)(part(rest) for part in parts)
    return lambda rest: value


@pytest.mark.parametrize("part", range(2))
@pytest.mark.turns(2)
def test_samples(part: int, tally: Tally) -> None:
    """Every eighth sample of float32; all of every type are run with ``-m exhaustive``."""
    cases = list(samples(torch.float32))
    assert len(cases) >= 240
    check_all(cases[part * 4 :: 8])
    tally("of PyTorch's own samples", len(cases[part * 4 :: 8]))


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.uint8, torch.int64, torch.bool), ids=str)
@pytest.mark.turns(2)
def test_some_samples_of_other_types(dtype: torch.dtype, tally: Tally) -> None:
    cases = list(samples(dtype))[::40]
    check_all(cases)
    tally("of PyTorch's own samples", len(cases))


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_sample(dtype: torch.dtype, part: int, device: str, tally: Tally) -> None:
    if device == "cuda" and not real_gpu():
        pytest.skip("TVM's own cumsum, which masks need, wants the threads of a warp in step")
    cases = list(samples(dtype))[part::2]
    for start in range(0, len(cases), 32):
        check_all(cases[start : start + 32], device=device)
    tally("of PyTorch's own samples", len(cases))


@pytest.mark.parametrize("order", [1.0, 2.0, float("inf")])
def test_rows_of_limited_length(order: float) -> None:
    """The rows that are read are shortened in place."""

    def function(words: Any, weight: Any) -> Any:
        weight = weight.clone()
        rows = torch.nn.functional.embedding(words, weight, max_norm=2.0, norm_type=order)
        return rows, weight

    check(function, torch.tensor([[3, 1], [1, 0]]), torch.randn(5, 6) * torch.arange(5.0)[:, None])
