"""Libraries that take a graph in a form of their own, which is made in advance.

Each form here is made from tensors on the device, and is then called without arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch

from .graph import HEADS

Call = Callable[[], Any]
#: Makes a form from the inputs of a case.
Maker = Callable[..., Call]
CSR = "torch.sparse, CSR given"
_REDUCE = "torch.sparse.mm(reduce), CSR given"
GEOMETRIC = "torch_geometric, EdgeIndex"


def csr(
    values: torch.Tensor, src: torch.Tensor, dst: torch.Tensor, shape: tuple[int, int]
) -> torch.Tensor:
    """The matrix that sums rows of sources into destinations, each times a value."""
    order = torch.argsort(dst, stable=True)
    counts = torch.bincount(dst, minlength=shape[0])
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return torch.sparse_csr_tensor(starts, src[order], values[order], shape)


def product(
    x: torch.Tensor, values: torch.Tensor, src: torch.Tensor, dst: torch.Tensor, extent: int
) -> Call:
    """A product with a sparse matrix; on CUDA cuSPARSE computes it."""
    matrix = csr(values, src, dst, (extent, len(x)))
    return lambda: matrix @ x


def reduced_product(
    reduce: str,
    x: torch.Tensor,
    values: torch.Tensor,
    src: torch.Tensor,
    dst: torch.Tensor,
    extent: int,
) -> Call:
    """A product with a sparse matrix that reduces otherwise; only on CPUs."""
    matrix = csr(values, src, dst, (extent, len(x)))
    return lambda: torch.sparse.mm(matrix, x, reduce)


def weighted_sums() -> dict[str, Maker]:
    """Sums of rows times weights, from (x, weight, src, dst)."""

    def layer(x: Any, weight: Any, src: Any, dst: Any) -> Call:
        return _simple("sum", x, src, dst, weight)

    def sparse(make: Any, x: Any, weight: Any, src: Any, dst: Any) -> Call:
        return make(x, weight, src, dst, len(x))

    made = {
        CSR: partial(sparse, product),
        _REDUCE: partial(sparse, partial(reduced_product, "sum")),
    }
    return {**made, **_geometric(layer)}


def reductions(reduce: str) -> dict[str, Maker]:
    """A reduction of rows, from (x, src, dst): ``"sum"``, ``"mean"`` or ``"amax"``."""

    def ones(x: Any, src: Any, dst: Any) -> Call:
        return product(x, x.new_ones(len(src)), src, dst, len(x))

    def shares(x: Any, src: Any, dst: Any) -> Call:
        counts = torch.bincount(dst, minlength=len(x))
        return product(x, (1 / counts[dst]).to(x.dtype), src, dst, len(x))

    def reduced(x: Any, src: Any, dst: Any) -> Call:
        return reduced_product(reduce, x, x.new_ones(len(src)), src, dst, len(x))

    def layer(x: Any, src: Any, dst: Any) -> Call:
        return _simple(reduce.removeprefix("a"), x, src, dst)

    products: dict[str, dict[str, Maker]] = {"sum": {CSR: ones}, "mean": {CSR: shares}}
    return {**products.get(reduce, {}), _REDUCE: reduced, **_geometric(layer)}


def edge_convolution() -> dict[str, Maker]:
    """The layer of EdgeConv without its product, from (x, src, dst)."""

    def layer(x: Any, src: Any, dst: Any) -> Call:
        from torch_geometric.nn import MessagePassing

        class Layer(MessagePassing):
            def __init__(self) -> None:
                super().__init__(aggr="max")

            def forward(self, x: Any, edge_index: Any) -> Any:
                return self.propagate(edge_index, x=x)

            def message(self, x_i: Any, x_j: Any) -> Any:
                return (x_i - x_j).relu()

        made: Any = Layer()
        return partial(made, x, edge_index(src, dst, len(x)))

    return _geometric(layer)


def edge_softmax() -> dict[str, Maker]:
    """GAT's layer without its products, from (x, left, right, src, dst)."""

    def layer(x: Any, left: Any, right: Any, src: Any, dst: Any) -> Call:
        from torch_geometric.nn import MessagePassing
        from torch_geometric.utils import softmax

        class Layer(MessagePassing):
            def __init__(self) -> None:
                super().__init__(aggr="sum", node_dim=0)

            def forward(self, x: Any, left: Any, right: Any, edge_index: Any) -> Any:
                values = x.unflatten(1, (HEADS, -1))
                return self.propagate(edge_index, x=values, logit=(left, right)).flatten(1)

            def message(
                self, x_j: Any, logit_i: Any, logit_j: Any, index: Any, ptr: Any, size_i: Any
            ) -> Any:
                logit = torch.nn.functional.leaky_relu(logit_j + logit_i, 0.2)
                return x_j * softmax(logit, index, ptr, size_i)[:, :, None]

        made: Any = Layer()
        return partial(made, x, left, right, edge_index(src, dst, len(x)))

    return _geometric(layer)


def edge_softmax_v2() -> dict[str, Maker]:
    """GATv2's layer without its products, from (x, target, weights, src, dst)."""

    def layer(x: Any, target: Any, weights: Any, src: Any, dst: Any) -> Call:
        from torch_geometric.nn import MessagePassing
        from torch_geometric.utils import softmax

        class Layer(MessagePassing):
            def __init__(self) -> None:
                super().__init__(aggr="sum", node_dim=0)

            def forward(self, x: Any, target: Any, weights: Any, edge_index: Any) -> Any:
                ends = tuple(each.unflatten(1, (HEADS, -1)) for each in (x, target))
                return self.propagate(edge_index, x=ends, weights=weights).flatten(1)

            def message(
                self, x_i: Any, x_j: Any, weights: Any, index: Any, ptr: Any, size_i: Any
            ) -> Any:
                both = torch.nn.functional.leaky_relu(x_i + x_j, 0.2)
                logit = (both * weights).sum(-1)
                return x_j * softmax(logit, index, ptr, size_i)[:, :, None]

        made: Any = Layer()
        return partial(made, x, target, weights, edge_index(src, dst, len(x)))

    return _geometric(layer)


def edge_index(src: torch.Tensor, dst: torch.Tensor, nodes: int) -> Any:
    """A graph as torch_geometric has it fastest: sorted by destination, all its forms kept."""
    from torch_geometric import EdgeIndex

    order = torch.argsort(dst, stable=True)
    edges = torch.stack([src[order], dst[order]])
    return EdgeIndex(edges, sparse_size=(nodes, nodes), sort_order="col").fill_cache_()


def _simple(aggregation: str, x: Any, src: Any, dst: Any, weight: Any = None) -> Call:
    from torch_geometric.nn import SimpleConv

    sorted_weight = None if weight is None else weight[torch.argsort(dst, stable=True)]
    return partial(SimpleConv(aggr=aggregation), x, edge_index(src, dst, len(x)), sorted_weight)


def _geometric(maker: Maker) -> dict[str, Maker]:
    """A form under torch_geometric's name, if it is installed."""
    return {GEOMETRIC: maker} if find_spec("torch_geometric") is not None else {}
