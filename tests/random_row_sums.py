"""Random reductions of rows that are read by index, and what they mean in NumPy.

All numbers are small integers, so that every order of a sum gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from random_reads import numpy_dtype
from tvm import relax, tirx

Array = np.ndarray[Any, Any]
DTYPES = ("float32", "float16", "bfloat16", "float64", "int8", "uint8", "int32", "int64")
WIDTHS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 32, 33, 48, 100, 128, 160)
_OPERATORS = ("subtract", "add", "multiply", "maximum")
EDGES = (1, 5, 40, 70)
_NODES = 9


class Drawn(NamedTuple):
    """A reduction over arrays, and its value."""

    build: Callable[..., Any]
    arrays: tuple[Array, ...]
    expected: Array


def with_symbols(arrays: tuple[Array, ...]) -> list[relax.Var]:
    """Parameters for the arrays of a reduction, whose numbers of nodes and edges are symbolic."""
    sizes = {size: tirx.Var(f"n{size}", "int64") for size in (_NODES, *EDGES) if size != 1}
    return [
        relax.Var(
            f"p{at}",
            relax.TensorType([sizes.get(array.shape[0], 1), *array.shape[1:]], str(array.dtype)),
        )
        for at, array in enumerate(arrays)
    ]


class _Rows:
    """Draws what a row is computed from, and computes it."""

    def __init__(self, seed: int, bad: bool) -> None:
        self.random = np.random.default_rng(seed)
        self.bad = bad
        name = DTYPES[seed % len(DTYPES)]
        self.dtype, self.name = numpy_dtype(name), name
        heads = [int(each) for each in self.random.choice([1, 2, 3, 4], self.random.integers(2))]
        self.row = [*heads, int(self.random.choice(WIDTHS))]
        self.edges = int(self.random.choice(EDGES))
        self.arrays: list[Array] = []

    def values(self, *shape: int) -> tuple[int, Array]:
        """A parameter: its number, and its values."""
        least = 0 if self.name.startswith("u") else -2
        array = self.random.integers(least, 3, shape).astype(self.dtype)
        self.arrays.append(array)
        return len(self.arrays) - 1, array

    def index(self) -> tuple[int, Array]:
        """Indices of nodes, of which some may be bad."""
        index = self.random.integers(-_NODES, _NODES, self.edges)
        if self.bad:
            far = self.random.choice([_NODES, -_NODES - 1, 2**30], self.edges)
            index = np.where(self.random.random(self.edges) < 0.2, far, index)
        self.arrays.append(index.astype(self.random.choice(["int32", "int64"])))
        return len(self.arrays) - 1, self.arrays[-1]

    def read(self) -> tuple[Callable[..., Any], Array]:
        """Rows of nodes."""
        (x, values), (i, index) = self.values(_NODES, *self.row), self.index()
        inside = (index >= -_NODES) & (index < _NODES)
        rows = values[np.where(inside, index, 0)]
        rows = np.where(inside.reshape(-1, *[1] * len(self.row)), rows, np.zeros((), self.dtype))
        return lambda emit, p: emit(relax.op.take(p[x], p[i], 0)), rows

    def other(self) -> tuple[Callable[..., Any], Array]:
        """Something else to compute with: a row for each edge, one for all, or a number each."""
        kind = int(self.random.integers(4))
        if kind == 0:
            return self.read()
        shape = {
            1: (self.edges, *self.row),
            2: (1, *self.row),
            3: (self.edges, *[1] * len(self.row)),
        }[kind]
        at, values = self.values(*shape)
        return lambda _emit, p: p[at], values

    def combined(self) -> tuple[Callable[..., Any], Array]:
        """A row for each edge, computed from rows of nodes and more."""
        build, rows = self.read()
        for _ in range(int(self.random.integers(1, 3))):
            # TVM's CUDA computes uint8 in int, and so does not wrap around below zero.
            first = int(self.name.startswith("u"))
            operator = _OPERATORS[int(self.random.integers(first, len(_OPERATORS)))]
            other, values = self.other()
            build = _applied(getattr(relax.op, operator), build, other)
            rows = getattr(np, operator)(rows, values)
        if self.random.random() < 0.5:
            inner = build
            build = lambda emit, p: emit(relax.op.nn.relu(inner(emit, p)))  # noqa: E731
            rows = np.maximum(rows, np.zeros((), self.dtype))
        return build, rows


def _applied(operator: Any, left: Any, right: Any) -> Callable[..., Any]:
    return lambda emit, p: emit(operator(left(emit, p), right(emit, p)))


def draw_row_sum(seed: int, bad: bool = False) -> Drawn:
    """A reduction; where ``bad``, about one index of five is out of bounds and reads a zero."""
    rows = _Rows(seed, bad)
    kind = ("sum", "sum", "max", "min", "mean", "dot")[int(rows.random.integers(6))]
    if kind == "mean" and not rows.name.startswith("float"):
        kind = "sum"
    if kind == "dot":
        (left, a), (right, b) = rows.read(), rows.read()
        expected = _in_type((a.astype("float64") * b.astype("float64")).sum(-1), rows.dtype)
        return Drawn(_dot(left, right, rows.row), tuple(rows.arrays), expected)
    build, values = rows.combined()
    count = int(rows.random.integers(1, values.ndim)) if kind != "mean" else 1
    axes, keeps = [-1 - at for at in range(count)], bool(rows.random.integers(2))
    reduced = getattr(values.astype("float64"), kind)(axis=tuple(axes), keepdims=keeps)

    def whole(*parameters: Any) -> Any:
        emit = relax.BlockBuilder.current().emit
        return emit(getattr(relax.op, kind)(build(emit, parameters), axes, keeps))

    return Drawn(whole, tuple(rows.arrays), _in_type(reduced, rows.dtype))


def _in_type(values: Array, dtype: Any) -> Array:
    """Whole numbers in some type, of which integer ones wrap around."""
    if np.dtype(dtype).kind in "iu":
        return values.astype("int64").astype(dtype)
    return (
        values.astype("float32").astype(dtype)
        if np.dtype(dtype).itemsize < 4
        else values.astype(dtype)
    )


def _dot(left: Any, right: Any, row: Sequence[int]) -> Callable[..., Any]:
    """As PyTorch writes ``einsum("...k,...k->...", left, right)``: a batch of products."""
    *heads, width = row

    def build(*parameters: Any) -> Any:
        emit = relax.BlockBuilder.current().emit
        rows, columns = left(emit, parameters), right(emit, parameters)
        edges = rows.ty.shape[0]
        batch = edges * int(np.prod(heads, dtype="int64"))
        rows = emit(relax.op.reshape(rows, [batch, 1, width]))
        columns = emit(relax.op.reshape(columns, [batch, width, 1]))
        product = emit(relax.op.matmul(rows, columns))
        return emit(relax.op.reshape(product, [edges, *heads]))

    return build
