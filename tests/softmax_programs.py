"""A softmax over the updates of each destination, and what it weights, as models write it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_scatter import order
from tvm_scatter.ops.operators import index_put

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Attention:
    """Sizes and spellings of a program. It takes logits, values and the destinations.

    Attributes
    ----------
    heads : tuple of int
        The axes of a logit's row; none if each edge has a single logit.
    columns : tuple of int
        The axes of the values that have one logit.
    view : str
        The operator that gives the shares the axes of the values.
    tiny : float or None
        What is added to the sums; ``None`` if nothing is.
    layers : int
        How many such sums are added, over the same index.
    wraps : bool
        Whether negative destinations count from the end.
    symbolic : bool
        Whether the numbers of nodes and edges are symbolic.
    ordered : bool
        Whether the program makes the order of its edges itself.
    """

    nodes: int = 7
    edges: int = 60
    heads: tuple[int, ...] = (2,)
    columns: tuple[int, ...] = (4,)
    dtype: str = "float32"
    view: str = "expand_dims"
    tiny: float | None = 1e-16
    layers: int = 1
    wraps: bool = False
    symbolic: bool = False
    ordered: bool = False

    @staticmethod
    def draw(random: Random, dtypes: Sequence[str]) -> Attention:
        """A random program."""
        return Attention(
            nodes=random.choice([1, 2, 7, 33]),
            edges=random.choice([1, 5, 64, 200, 300]),
            heads=random.choice([(), (1,), (2,), (3,), (4,), (2, 3)]),
            columns=random.choice([(), (1,), (3,), (4,), (8,), (16,), (2, 6), (5, 8)]),
            dtype=random.choice(dtypes),
            view=random.choice(["expand_dims", "broadcast_to"]),
            tiny=random.choice([None, 1e-16]),
            layers=random.choice([1, 1, 2]),
            wraps=random.random() < 0.4,
            symbolic=random.random() < 0.3,
            ordered=random.random() < 0.2,
        )

    def module(self) -> tvm.IRModule:
        """The function ``main`` of logits, values and destinations."""
        builder = relax.BlockBuilder()
        nodes, edges = (
            (tvm.tirx.Var(name, "int64") for name in "ne")
            if self.symbolic
            else (self.nodes, self.edges)
        )
        shapes = ([edges, *self.heads], [edges, *self.heads, *self.columns])
        logits, values = (
            relax.Var(name, relax.TensorType(shape, self.dtype))
            for name, shape in zip(("logits", "values"), shapes, strict=True)
        )
        index = relax.Var("index", relax.TensorType([edges], "int64"))
        like = relax.Var("like", relax.TensorType([nodes], self.dtype))
        with builder.function("main", [logits, values, index, like]):
            with builder.dataflow():
                result: Any = None
                for _ in range(self.layers):
                    layer = emit_attention(self, builder, logits, values, index, nodes)
                    result = layer if result is None else builder.emit(result + layer)
                output = builder.emit_output(result)
            builder.emit_func_output(output)
        return builder.get()

    def arrays(self, seed: int = 0, empty: bool = True) -> list[Array]:
        """Arguments; the last destination gets nothing."""
        random = np.random.default_rng(seed)
        logits = 3 * random.standard_normal((self.edges, *self.heads))
        values = random.standard_normal((self.edges, *self.heads, *self.columns))
        index = random.integers(0, max(self.nodes - empty, 1), self.edges)
        like = np.zeros(self.nodes, self.dtype)
        return [logits.astype(self.dtype), values.astype(self.dtype), index, like]

    def expected(self, arrays: Sequence[Array]) -> Array:
        """The result in float64. Edges whose index is out of bounds are left out."""
        logits, values = (each.astype("float64") for each in arrays[:2])
        index = arrays[2]
        inside = (index >= 0) & (index < self.nodes)
        logits, values, index = logits[inside], values[inside], index[inside]
        most = np.full((self.nodes, *self.heads), -np.inf)
        sums = np.zeros((self.nodes, *self.heads))
        result = np.zeros((self.nodes, *values.shape[1:]))
        with np.errstate(invalid="ignore", over="ignore"):
            np.maximum.at(most, index, logits)
            powers = np.exp(logits - most[index])
            np.add.at(sums, index, powers)
            shares = powers / sums[index]
            shares = shares.reshape(*shares.shape, *[1] * len(self.columns))
            np.add.at(result, index, shares * values)
        return result * self.layers


def emit_attention(
    kind: Attention, builder: relax.BlockBuilder, logits: Any, values: Any, index: Any, nodes: Any
) -> Any:
    """Emit the steps of a program."""
    op, emit = relax.op, builder.emit
    ordering = emit(order(index, nodes, wrap_negative=kind.wraps)) if kind.ordered else None

    def reduced(updates: Any, reduction: str) -> Any:
        shape = [nodes, *updates.ty.shape.values[1:]]
        more = {"include_self": reduction == "add", "wrap_negative": kind.wraps}
        more["ordering"] = ordering
        zeros = emit(op.zeros(shape, kind.dtype))
        return emit(index_put(zeros, [index], updates, [0], reduction, **more))

    def read(rows: Any) -> Any:
        mode = "fast" if kind.wraps else "index_select"
        return emit(op.take(rows, index, 0, mode=mode))

    most = read(reduced(logits, "max"))
    power = emit(op.exp(emit(op.subtract(logits, most))))
    total = reduced(power, "add")
    if kind.tiny is not None:
        total = emit(op.add(total, relax.const(kind.tiny, kind.dtype)))
    shares = emit(op.divide(power, read(total)))
    rank = len(values.ty.shape) - len(shares.ty.shape)
    if kind.view == "reshape":
        shares = emit(op.reshape(shares, [*shares.ty.shape.values, *[1] * rank]))
    elif rank:
        for _ in range(rank):
            shares = emit(op.expand_dims(shares, -1))
    if kind.view == "broadcast_to":
        shares = emit(op.broadcast_to(shares, values.ty.shape))
    return reduced(emit(op.multiply(shares, values)), "add")
