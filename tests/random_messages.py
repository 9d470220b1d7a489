"""Random programs of what models compute for each edge of a graph and scatter to its nodes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import tvm
from message_writer import MessageWriter, Style
from tvm import relax

from tvm_scatter.problem.reductions import numpy_dtype

Array = np.ndarray[Any, Any]
REDUCTIONS = ("update", "add", "mul", "min", "max", "mean")
POLICIES = ("drop", "raise", "trust")


@dataclass
class Program:
    """A function of Relax, and what its parameters hold.

    Attributes
    ----------
    name : str
        The name of the function.
    sizes : tuple of dict
        For each run, the size of each axis.
    leaves : list of Leaf
        The parameters.
    """

    name: str
    style: Style
    sizes: tuple[dict[str, int], ...]
    leaves: list[Any] = field(default_factory=list)

    def arrays(self, run: int) -> list[Array]:
        """Arguments for one of the runs."""
        random = np.random.default_rng(zlib.crc32(f"{self.name} {run}".encode()))
        return [self._array(leaf, self.sizes[run], random) for leaf in self.leaves]

    def _array(self, leaf: Any, sizes: Mapping[str, int], random: np.random.Generator) -> Array:
        shape = [sizes[axis] for axis in leaf.axes]
        style, dtype = self.style, str(leaf.var.ty.dtype)
        if leaf.kind == "mask":
            return random.random(shape) < 0.5
        if leaf.kind != "value":
            return self._indices(shape, sizes[leaf.kind], dtype, random)
        if style.whole:
            values = random.integers(style.least, style.limit + 1, shape)
        else:
            values = random.uniform(style.least, style.limit, shape)
        values = values.astype(numpy_dtype(dtype))
        if style.nans:
            values[random.random(shape) < 0.03] = np.nan
        return values

    def _indices(
        self, shape: list[int], extent: int, dtype: str, random: np.random.Generator
    ) -> Array:
        signed = not dtype.startswith("u")
        low = -extent if self.style.wraps and signed else 0
        chosen = random.integers(low, max(extent, 1), shape)
        if self.style.bad:
            far = np.iinfo(dtype).max
            wrong = random.choice([extent, far, far - extent + 1], shape)
            if signed:
                wrong = np.where(random.random(shape) < 0.5, wrong, -wrong - 1)
            chosen = np.where(random.random(shape) < 0.2, wrong, chosen)
        return chosen.astype(dtype)


def add_program(
    builder: relax.BlockBuilder,
    name: str,
    random: Random,
    dtypes: tuple[str, ...],
    bounds: str,
    nans: bool = False,
    softmax: bool = True,
) -> Program:
    """Add a function that computes and scatters random messages.

    Parameters
    ----------
    softmax : bool
        Whether it may weight messages by a softmax.
    """
    style = Style.draw(random, dtypes, bounds, random.choice(REDUCTIONS), nans)
    sizes = [_sizes(random)]
    symbolic = random.random() < 0.4
    # Vectors are chosen by a number of columns that is known.
    known = "1hw" if random.random() < 0.5 else "1h"
    if symbolic:
        same = {axis: sizes[0][axis] for axis in known}
        sizes += [_sizes(random) | same, sizes[0] | {"e": 0}]
    axes = {
        axis: tvm.tirx.Var(axis, "int64") if symbolic and axis not in known else size
        for axis, size in sizes[0].items()
    }
    with builder.function(name):
        with builder.dataflow():
            writer = MessageWriter(random, builder, style, axes, softmax)
            output = builder.emit_output(writer.program())
        builder.emit_func_output(output, [leaf.var for leaf in writer.leaves])
    return Program(name, style, tuple(sizes), writer.leaves)


def _sizes(random: Random) -> dict[str, int]:
    return {
        "n": random.choice([1, 7, 20, 33]),
        "e": random.choice([0, 1, 5, 50, 130]),
        "w": random.choice([1, 2, 3, 4, 8, 12, 16]),
        "h": random.choice([1, 2, 3]),
        "1": 1,
    }
