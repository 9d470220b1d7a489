"""The rows of the benchmark of models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from itertools import product

import torch

from .applications import APPLICATIONS
from .case import Case
from .data_sets import DATA_SETS, OF_DATA_SETS
from .edges import OPERATIONS
from .graph import Graph, Size, draw
from .layers import LAYERS, two_layers

_NODES = 100_000
_DEGREES = (3, 10, 50)
_CORA = Size(2708, 10556, "uniform")
_DTYPES = ("float32", "bfloat16")
#: The default part of the work that a device is measured with: one in so many.
SCALE = {"cpu": 10, "cuda": 1}


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes
    ----------
    name : str
        What is computed, of which type, on what.
    alike : str
        Rows of which this is equal have one module and inputs of one shape.
    make : callable
        Makes the case on the host.
    is_model : bool
        Whether it is a whole model.
    """

    name: str
    alike: str
    make: Callable[[], Case] = field(repr=False)
    is_model: bool = False


def rows(scale: int) -> list[Row]:
    """All rows, of which those that are alike follow each other."""
    return [*_models(scale), *_applications(scale), *_operations(scale), *_data_sets(scale)]


def picked(among: list[Row], wanted: str) -> list[Row]:
    """The rows whose names begin with a text, in which ``*`` and ``?`` stand for any other."""
    return [row for row in among if fnmatchcase(row.name.lower(), f"{wanted.lower()}*")]


def _models(scale: int) -> Iterator[Row]:
    nodes = max(16, _NODES // scale)
    size = Size(nodes, 10 * nodes, "uniform", 10)
    for name in LAYERS:
        full = f"{name}, two layers"
        yield Row(full, full, partial(two_layers, name, size), is_model=True)


def _applications(scale: int) -> Iterator[Row]:
    for dtype in _DTYPES:
        for name, make in APPLICATIONS.items():
            full = f"{name}, {dtype}"
            kind = getattr(torch, dtype)
            alike = f"{name.partition(',')[0]}, {dtype}"
            yield Row(full, alike, partial(make, kind, scale))


def _operations(scale: int) -> Iterator[Row]:
    nodes = max(16, _NODES // scale)
    graphs = [
        Size(nodes, nodes * degree, indices, degree)
        for degree in _DEGREES
        for indices in ("uniform", "zipf(1.2)")
    ]
    for name, make in OPERATIONS.items():
        for dtype in _DTYPES:
            for size in (*graphs, _CORA):
                full = f"{name}, {dtype}, {_text(size)}"
                alike = f"{name}, {dtype}, {size.nodes}, {size.edges}"
                kind = getattr(torch, dtype)
                yield Row(full, alike, partial(_of_graph, make, size, kind))


def _data_sets(scale: int) -> Iterator[Row]:
    for data_set in DATA_SETS:
        nodes, edges = max(16, data_set.nodes // scale), max(16, data_set.edges // scale)
        for features, (name, dtype, distributions) in product(data_set.features, OF_DATA_SETS):
            alike = f"data set {data_set.name}, {features} features, {name}, {dtype}"
            make, kind = OPERATIONS[name], getattr(torch, dtype)
            for indices in distributions:
                size = Size(nodes, edges, indices, features=features)
                yield Row(f"{alike}, {indices}", alike, partial(_of_graph, make, size, kind))


def _of_graph(make: Callable[[Graph], Case], size: Size, dtype: torch.dtype) -> Case:
    return make(draw(size, dtype))


def _text(size: Size) -> str:
    return "Cora's size" if size.degree is None else f"{size.indices}, degree {size.degree}"
