"""Attention of one head, whose index has an axis of size 1, is fused as that of several is."""

from __future__ import annotations

import pytest
import torch
from harness import target_of
from torch_harness import assert_same, compile_for, export, run
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

import tvm_scatter
from tvm_scatter.passes.analysis.same_value import SameValue

NODES, WIDTH = 7, 5
OPTIONS = {"fuse": True, "bounds": "drop"}


def attention(logits, values, index, read):
    """A softmax over the edges of each node as it is written by hand.

    ``index`` is a column; ``read`` returns a row for each edge.
    """
    zeros = torch.zeros(NODES, 1, dtype=logits.dtype)
    most = zeros.scatter_reduce(0, index, logits, "amax", include_self=False)
    powers = torch.exp(logits - read(most))
    shares = powers / read(zeros.scatter_add(0, index, powers))
    zeros = torch.zeros(NODES, WIDTH, dtype=logits.dtype)
    return zeros.scatter_add(0, index.expand(-1, WIDTH), shares * values)


#: How the column of an index is written, given the vector or the column, and what is read by it.
IDIOMS = {
    "gathered": lambda vector, _: (vector.view(-1, 1), lambda rows, index: rows.gather(0, index)),
    "transposed": lambda vector, _: (
        vector.view(1, -1).t(),
        lambda rows, index: rows.gather(0, index),
    ),
    "expanded to its shape": lambda vector, _: (
        vector.view(-1, 1).expand(-1, 1),
        lambda rows, _: rows[vector],
    ),
    "its only column": lambda _, column: (column, lambda rows, index: rows[index[:, 0]]),
    "squeezed": lambda _, column: (
        column,
        lambda rows, index: rows.index_select(0, index.squeeze(1)),
    ),
    "cast": lambda _, column: (
        column.to(torch.int32).to(torch.int64),
        lambda rows, index: rows.gather(0, index),
    ),
}


def every_idiom(logits, values, vector, column):
    """A result for each of them."""
    results = []
    for idiom in IDIOMS.values():
        index, read = idiom(vector, column)
        results.append(attention(logits, values, index, lambda rows, i=index, r=read: r(rows, i)))
    return tuple(results)


def arguments(edges=60, dtype=torch.float32):
    """The last node has no edges."""
    random = torch.Generator().manual_seed(edges)
    logits = torch.randn(edges, 1, generator=random).to(dtype)
    values = torch.randn(edges, WIDTH, generator=random).to(dtype)
    vector = torch.randint(0, NODES - 1, (edges,), generator=random)
    return logits, values, vector, vector.view(-1, 1).clone()


def compiled(function, inputs, device, dynamic=None, **options):
    """A program for a device, and what ``explain`` says of it."""
    module = from_exported_program(export(function, inputs, dynamic))
    with tvm_scatter.options(**{**OPTIONS, **options}):
        explained = tvm_scatter.explain(module, target_of(device))
        return compile_for(module, device), explained


def compare(machine, device, function, inputs):
    results = run(machine, inputs, device)
    for name, result, expected in zip(IDIOMS, results, function(*inputs), strict=False):
        assert_same(result, expected, name)


def test_idioms():
    inputs = arguments()
    machine, explained = compiled(every_idiom, inputs, "cuda")
    assert [each.problem.softmax for each in explained] == [True] * len(IDIOMS)
    compare(machine, "cuda", every_idiom, inputs)


def of_a_column(logits, values, vector, column):
    """One of them."""
    index, read = IDIOMS["gathered"](vector, column)
    return (attention(logits, values, index, lambda rows: read(rows, index)),)


def test_numbers_of_edges_that_are_open(device):
    """None of them, too."""
    dtype = torch.float16
    dynamic = [{0: torch.export.Dim("edges", max=500)}] * 4
    machine, explained = compiled(of_a_column, arguments(dtype=dtype), device, dynamic)
    assert [each.problem.softmax for each in explained] == [True]
    for count in (0, 1, 90):
        compare(machine, device, of_a_column, arguments(count, dtype))


def test_other_shapes_are_others():
    """An index that has the numbers of another one in another shape is another index."""
    values, known = {}, relax.Var("known", relax.TensorType([6], "int64"))

    def bound(call):
        values[var := relax.Var("var", relax.TensorType(call.args[1].values, "int64"))] = call
        return var

    column, twice, flat, wide = (
        bound(relax.op.reshape(known, shape)) for shape in ([6, 1], [6, 1], [6], [2, 3])
    )
    back = bound(relax.op.reshape(wide, [6, 1]))
    same = SameValue(values)
    assert same(column, twice) and same(column, back) and same(flat, known)
    assert not same(column, flat) and not same(column, wide) and not same(column, known)


@pytest.mark.each_device
def test_bad_index(device):
    inputs = arguments()
    machine, explained = compiled(of_a_column, inputs, device, bounds="raise")
    assert [each.problem.softmax for each in explained] == [True]
    inputs[2][8] = NODES
    with pytest.raises(IndexError, match=f"index {NODES} "):
        run(machine, inputs, device)


def test_other_reductions_share_the_order():
    """Scatters of one column and of several, by one index."""

    def function(values, column):
        narrow = torch.zeros(100_000, 1).scatter_add(0, column, values[:, :1])
        index = column.expand(-1, 4)
        return narrow, torch.zeros(100_000, 4).scatter_reduce(0, index, values, "sum")

    inputs = torch.empty(1_000_000, 4), torch.empty(1_000_000, 1, dtype=torch.int64)
    module = from_exported_program(export(function, inputs))
    with tvm_scatter.options(bounds="drop", deterministic=True):
        assert "shares one order with" in str(tvm_scatter.explain(module, target_of("cuda")))


slow = pytest.mark.exhaustive
LAYERS = [
    ("GATConv", {"concat": False, "edge_dim": 3, "add_self_loops": False}),
    pytest.param("GATv2Conv", {"edge_dim": 3, "add_self_loops": False}, marks=slow),
    pytest.param("TransformerConv", {"beta": True, "edge_dim": 3}, marks=slow),
]


@pytest.mark.parametrize(("name", "options"), LAYERS)
def test_layers(name, options):
    """As torch_geometric makes them where nobody asks for heads."""
    nn = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    layer = getattr(nn, name)(8, 4, **options).eval()
    inputs = torch.randn(20, 8), torch.randint(0, 19, (2, 100)), torch.randn(100, 3)
    machine, explained = compiled(layer, inputs, "cuda")
    assert [each.problem.softmax for each in explained] == [True]
    with torch.no_grad():
        assert_same(run(machine, inputs, "cuda")[0], layer(*inputs))
