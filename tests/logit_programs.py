"""Attention over the edges of a graph whose logits are sums along rows of nodes and edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any

import numpy as np
import tvm
from softmax_programs import Attention, emit_attention
from tvm import relax

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Rows:
    """Sizes and spellings of a program. It takes rows of nodes and of edges, and both ends.

    Attributes
    ----------
    sources : int
        The number of nodes that edges begin at.
    form : str
        ``"product"`` of a query and a key, as TransformerConv has it, also with ``"edges"`` added
        to keys and values; ``"dots"``, the same as a batch of matrix products; or ``"additive"``,
        as GATv2 has it.
    bias : bool
        Whether a number for each edge and head is added to the logits.
    returned : bool
        Whether the program returns the sums as well.
    """

    nodes: int = 7
    sources: int = 9
    edges: int = 60
    heads: tuple[int, ...] = (2,)
    columns: tuple[int, ...] = (4,)
    dtype: str = "float32"
    form: str = "product"
    bias: bool = False
    wraps: bool = False
    symbolic: bool = False
    returned: bool = False

    @staticmethod
    def draw(random: Random, dtypes: Sequence[str]) -> Rows:
        """A random program."""
        return Rows(
            nodes=random.choice([1, 2, 7, 33]),
            sources=random.choice([1, 5, 40]),
            edges=random.choice([1, 5, 64, 200, 300]),
            heads=random.choice([(), (1,), (2,), (3,), (5,), (2, 3)]),
            columns=random.choice([(1,), (3,), (4,), (12,), (20,), (32,), (36,), (40,), (2, 6)]),
            dtype=random.choice(dtypes),
            form=random.choice(["product", "edges", "dots", "additive"]),
            bias=random.random() < 0.3,
            wraps=random.random() < 0.3,
            symbolic=random.random() < 0.3,
        )

    @property
    def attention(self) -> Attention:
        """What is made of the logits."""
        return Attention(
            self.nodes,
            self.edges,
            self.heads,
            self.columns,
            self.dtype,
            wraps=self.wraps,
        )

    def module(self) -> tvm.IRModule:
        """The function ``main``."""
        builder = relax.BlockBuilder()
        sizes = {"n": self.nodes, "s": self.sources, "e": self.edges}
        if self.symbolic:
            sizes = {name: tvm.tirx.Var(name, "int64") for name in sizes}
        row = [*self.heads, *self.columns]
        shapes = {
            "queries": [sizes["n"], *row],
            "keys": [sizes["s"], *row],
            "values": [sizes["s"], *row],
            "attributes": [sizes["e"], *row],
            "bias": [sizes["e"], *self.heads],
            "weights": [1, *row],
        }
        given = {
            name: relax.Var(name, relax.TensorType(shape, self.dtype))
            for name, shape in shapes.items()
        }
        for name in ("source", "target"):
            given[name] = relax.Var(name, relax.TensorType([sizes["e"]], "int64"))
        with builder.function("main", [*given.values()]):
            with builder.dataflow():
                sums, logits, values = self._logits(builder, given, sizes["e"])
                result = emit_attention(
                    self.attention, builder, logits, values, given["target"], sizes["n"]
                )
                outputs = [builder.emit_output(result)]
                if self.returned:
                    outputs.append(builder.emit_output(sums))
            builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
        return builder.get()

    def _logits(self, builder: relax.BlockBuilder, given: Any, edges: Any) -> tuple[Any, Any, Any]:
        """Sums along rows, the logits that are made of them, and the values of edges."""
        op, emit = relax.op, builder.emit

        def read(rows: str, ends: str) -> Any:
            mode = "fast" if self.wraps else "index_select"
            return emit(op.take(given[rows], given[ends], 0, mode=mode))

        axes = [-1 - at for at in range(len(self.columns))]
        query, key = read("queries", "target"), read("keys", "source")
        value = key if self.form == "additive" else read("values", "source")
        if self.form == "edges":
            key = emit(op.add(key, given["attributes"]))
            value = emit(op.add(value, given["attributes"]))
        if self.form == "additive":
            both = emit(op.nn.leakyrelu(emit(op.add(query, key)), 0.2))
            sums = emit(op.sum(emit(op.multiply(both, given["weights"])), axes))
        elif self.form == "dots":
            batch, width = edges * prod(self.heads), prod(self.columns)
            left = emit(op.reshape(query, [batch, 1, width]))
            right = emit(op.reshape(key, [batch, width, 1]))
            sums = emit(op.reshape(emit(op.matmul(left, right)), [edges, *self.heads]))
        else:
            sums = emit(op.sum(emit(op.multiply(query, key)), axes))
        logits = sums
        if self.form != "additive":
            logits = emit(op.multiply(sums, relax.const(self._scale, self.dtype)))
        if self.bias:
            logits = emit(op.add(logits, given["bias"]))
        return sums, logits, value

    @property
    def _scale(self) -> float:
        return float(prod(self.columns)) ** -0.5

    def arrays(self, seed: int = 0) -> list[Array]:
        """Arguments; the last destination gets nothing."""
        random = np.random.default_rng(seed)
        row = (*self.heads, *self.columns)
        shapes = [(self.nodes, *row), (self.sources, *row), (self.sources, *row)]
        shapes += [(self.edges, *row), (self.edges, *self.heads), (1, *row)]
        made = [random.standard_normal(shape).astype(self.dtype) for shape in shapes]
        ends = [(0, self.sources), (0, max(self.nodes - 1, 1))]
        return [*made, *(random.integers(*end, self.edges) for end in ends)]

    def expected(self, arrays: Sequence[Array]) -> Array:
        """The result in float64. What is read by an index that is out of bounds is 0."""
        *tensors, source, target = arrays
        query, key, value, attributes, bias, weights = (each.astype("float64") for each in tensors)

        def read(rows: Array, ends: Array) -> Array:
            ends = np.where(ends < 0, ends + len(rows), ends) if self.wraps else ends
            inside = (ends >= 0) & (ends < len(rows))
            found = rows[np.where(inside, ends, 0)]
            return np.where(inside.reshape(-1, *[1] * (rows.ndim - 1)), found, 0)

        axes = tuple(-1 - at for at in range(len(self.columns)))
        queries, keys = read(query, target), read(key, source)
        values = keys if self.form == "additive" else read(value, source)
        if self.form == "edges":
            keys, values = keys + attributes, values + attributes
        if self.form == "additive":
            both = queries + keys
            logits = (np.where(both > 0, both, 0.2 * both) * weights).sum(axes)
        else:
            logits = (queries * keys).sum(axes) * self._scale
        logits = logits + bias if self.bias else logits
        ends = np.where(target < 0, target + self.nodes, target) if self.wraps else target
        result: Array = self.attention.expected([logits, values, ends])
        return result
