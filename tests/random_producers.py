"""Random messages: what a model gathers and computes for each edge, as Relax and in NumPy.

Values are small whole numbers, so that every order of adding them gives the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_scatter.ops.operators import index_put, scatter_elements
from tvm_scatter.problem.reductions import numpy_dtype

Array = np.ndarray[Any, Any]
_LIMIT = 8


@dataclass(frozen=True)
class Graph:
    """Arguments of a message: features of nodes and of edges, and the nodes of each edge."""

    arrays: dict[str, Array]
    edges: int
    width: int

    @staticmethod
    def draw(random: Random, dtype: str, bad: bool = False) -> Graph:
        """A graph; with ``bad`` some indices are out of bounds."""
        generator = np.random.default_rng(random.randrange(1 << 30))
        nodes = random.choice([1, 7, 20, 33])
        edges = random.choice([0, 1, 5, 50, 130])
        width = random.choice([1, 2, 3, 4, 8, 12, 16])

        def whole(*shape: int) -> Array:
            return generator.integers(-4, 5, shape).astype(numpy_dtype(dtype))

        def index() -> Array:
            chosen = generator.integers(-nodes, nodes, edges)
            if bad:
                wrong = generator.choice([nodes, -nodes - 1, 1 << 40], edges)
                chosen = np.where(generator.random(edges) < 0.2, wrong, chosen)
            return chosen.astype("int64")

        arrays = {
            "data": whole(nodes, width),
            "x": whole(nodes, width),
            "y": whole(nodes, width),
            "bias": whole(width),
            "weight": whole(edges),
            "mixed": whole(width, edges),
            "message": whole(edges, width),
            "src": index(),
            "dst": index(),
        }
        return Graph(arrays, edges, width)


@dataclass
class Tensor:
    """A value in both worlds."""

    relax: Any
    numpy: Array


class Message:
    """Emits a random message for each edge, and evaluates it.

    Parameters
    ----------
    aliases : bool
        Whether the data that is scattered into may be gathered from as well.
    """

    def __init__(
        self, random: Random, graph: Graph, dtype: str, operators: int, aliases: bool
    ) -> None:
        self._random, self._graph, self._dtype = random, graph, dtype
        self._operators = operators
        self._sources = ["x", "y", *(["data"] if aliases else [])]

    def emit(self, builder: relax.BlockBuilder, parameters: dict[str, Any]) -> Tensor:
        """The message: a tensor of (edges, width)."""
        self._builder = builder
        self._parameters = parameters
        self._pool = [self._gathered(), self._leaf()]
        for _ in range(self._operators):
            self._pool.append(self._step())
        return self._whole(self._pool[-1])

    def _emit(self, value: Any) -> Any:
        return self._builder.emit(value)

    def _given(self, name: str) -> Tensor:
        return Tensor(self._parameters[name], self._graph.arrays[name])

    def _gathered(self) -> Tensor:
        source = self._given(self._random.choice(self._sources))
        index = self._given(self._random.choice(["src", "dst"]))
        return Tensor(
            self._emit(relax.op.take(source.relax, index.relax, axis=0)),
            gathered(source.numpy, index.numpy),
        )

    def _leaf(self) -> Tensor:
        kind = self._random.choice(["gather", "weight", "bias", "mixed", "message"])
        if kind == "gather":
            return self._gathered()
        leaf = self._given(kind)
        if kind == "weight":
            return Tensor(self._emit(relax.op.expand_dims(leaf.relax, 1)), leaf.numpy[:, None])
        if kind == "mixed":
            return Tensor(self._emit(relax.op.permute_dims(leaf.relax)), leaf.numpy.T)
        return leaf

    def _step(self) -> Tensor:
        left = self._random.choice(self._pool[-3:])
        right = self._random.choice([self._random.choice(self._pool), self._leaf()])
        return self._random.choice(_STEPS)(self, left, right)

    def _binary(self, name: str, compute: Callable[..., Array], left: Tensor, right: Tensor) -> Any:
        value = self._emit(getattr(relax.op, name)(left.relax, right.relax))
        return self._bounded(Tensor(value, compute(left.numpy, right.numpy)))

    def _bounded(self, value: Tensor) -> Tensor:
        most, least = (relax.const(limit, self._dtype) for limit in (_LIMIT, -_LIMIT))
        inner = self._emit(relax.op.minimum(value.relax, most))
        limits = np.asarray([-_LIMIT, _LIMIT]).astype(value.numpy.dtype)
        return Tensor(
            self._emit(relax.op.maximum(inner, least)), np.clip(value.numpy, limits[0], limits[1])
        )

    def _chosen(self, left: Tensor, right: Tensor) -> Tensor:
        condition = self._emit(relax.op.greater(left.relax, right.relax))
        return Tensor(
            self._emit(relax.op.where(condition, left.relax, right.relax)),
            np.where(left.numpy > right.numpy, left.numpy, right.numpy),
        )

    def _negated(self, left: Tensor, _right: Tensor) -> Tensor:
        return Tensor(self._emit(relax.op.negative(left.relax)), -left.numpy)

    def _cast(self, left: Tensor, _right: Tensor) -> Tensor:
        there = self._emit(relax.op.astype(left.relax, "int32"))
        return Tensor(self._emit(relax.op.astype(there, self._dtype)), left.numpy)

    def _reshaped(self, left: Tensor, _right: Tensor) -> Tensor:
        whole = self._whole(left)
        shape = whole.relax.ty.shape.values
        flat = self._emit(relax.op.reshape(whole.relax, [shape[0] * shape[1]]))
        return Tensor(self._emit(relax.op.reshape(flat, list(shape))), whole.numpy)

    def _whole(self, value: Tensor) -> Tensor:
        shape = self._parameters["message"].ty.shape
        box = (self._graph.edges, self._graph.width)
        return Tensor(
            self._emit(relax.op.broadcast_to(value.relax, list(shape.values))),
            np.broadcast_to(value.numpy, box),
        )


_STEPS: tuple[Callable[[Message, Tensor, Tensor], Tensor], ...] = (
    lambda self, a, b: self._binary("add", np.add, a, b),
    lambda self, a, b: self._binary("subtract", np.subtract, a, b),
    lambda self, a, b: self._binary("multiply", np.multiply, a, b),
    lambda self, a, b: self._binary("maximum", np.maximum, a, b),
    lambda self, a, b: self._binary("minimum", np.minimum, a, b),
    Message._chosen,
    Message._negated,
    Message._cast,
    Message._reshaped,
)


def gathered(source: Array, index: Array) -> Array:
    """Rows of a tensor; a row of zeros for an index that is out of bounds."""
    rows = len(source)
    place = np.where(index < 0, index + rows, index)
    valid = (place >= 0) & (place < rows)
    found = source[np.where(valid, place, 0)]
    return np.where(valid[:, None], found, np.zeros_like(found))


def add_function(
    builder: relax.BlockBuilder,
    name: str,
    random: Random,
    graph: Graph,
    dtype: str,
    reduction: str,
    symbolic: bool = False,
    aliases: bool = False,
    by_elements: bool = False,
) -> Array:
    """Add a function that scatters a random message to a module. Returns its result in NumPy."""
    sizes = {
        len(graph.arrays["x"]): "n",
        graph.edges: "e",
    }
    known: dict[str, Any] = {}

    def dim(size: int, axis: str) -> Any:
        if not symbolic or axis not in sizes.values():
            return size
        return known.setdefault(axis, tvm.tirx.Var(axis, "int64"))

    axes = {
        "data": "nw", "x": "nw", "y": "nw", "bias": "w", "weight": "e", "mixed": "we",
        "message": "ew", "src": "e", "dst": "e",
    }  # fmt: skip
    parameters = {
        each: relax.Var(
            each,
            relax.TensorType(
                [dim(size, axis) for size, axis in zip(array.shape, axes[each], strict=True)],
                "int64" if each in ("src", "dst") else dtype,
            ),
        )
        for each, array in graph.arrays.items()
    }
    message = Message(random, graph, dtype, random.randint(0, 7), aliases)
    with builder.function(name, list(parameters.values())):
        with builder.dataflow():
            data = parameters["data"]
            if aliases:
                # An intermediate value, which a scatter may overwrite.
                data = builder.emit(relax.op.add(data, relax.const(0, dtype)))
                parameters = {**parameters, "data": data}
            updates = message.emit(builder, parameters)
            if by_elements:
                index = builder.emit(relax.op.expand_dims(parameters["dst"], 1))
                shape = parameters["message"].ty.shape
                index = builder.emit(relax.op.broadcast_to(index, list(shape.values)))
                call = scatter_elements(
                    data, index, updates.relax, 0, reduction, wrap_negative=True
                )
            else:
                call = index_put(
                    data, [parameters["dst"]], updates.relax, [0], reduction, wrap_negative=True
                )
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    return scattered(graph, updates.numpy, reduction)


def scattered(graph: Graph, updates: Array, reduction: str) -> Array:
    """What NumPy computes; means are rounded like a division in the data type."""
    out = graph.arrays["data"].copy()
    rows = len(out)
    place = np.where(graph.arrays["dst"] < 0, graph.arrays["dst"] + rows, graph.arrays["dst"])
    valid = (place >= 0) & (place < rows)
    place, updates = place[valid], updates[valid]
    ufunc = {"add": np.add, "max": np.maximum, "min": np.minimum}.get(reduction)
    if ufunc is not None:
        ufunc.at(out, place, updates)
        return out
    for row, update in zip(place, updates, strict=True):
        out[row] = update
    return out
