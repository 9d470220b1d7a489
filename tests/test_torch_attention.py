"""Attention layers of PyTorch Geometric: the softmax over edges is computed in the scatter."""

from __future__ import annotations

import pytest
import torch
import tvm
from harness import device_of, target_of
from torch_harness import export, run
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

import tvm_scatter

nn = pytest.importorskip("torch_geometric.nn")

LAYERS = {
    "GATConv": {"heads": 4, "add_self_loops": False},
    "GATv2Conv": {"heads": 4, "add_self_loops": False},
    "TransformerConv": {"heads": 2},
}
slow = pytest.mark.exhaustive


@pytest.mark.parametrize(
    "name",
    ["GATConv", pytest.param("GATv2Conv", marks=slow), pytest.param("TransformerConv", marks=slow)],
)
def test_layers(name, device):
    torch.manual_seed(0)
    layer = getattr(nn, name)(8, 4, **LAYERS[name]).eval()
    x, edges = torch.randn(20, 8), torch.randint(0, 19, (2, 100))
    with torch.no_grad():
        wanted = layer(x, edges)
        module = from_exported_program(export(layer, (x, edges)))
    with tvm_scatter.options(fuse=True):
        [explanation] = tvm_scatter.explain(module, target_of(device))
        machine = relax.VirtualMachine(tvm.compile(module, target_of(device)), device_of(device))
    assert explanation.problem.softmax
    torch.testing.assert_close(run(machine, (x, edges), device)[0], wanted, rtol=1e-5, atol=1e-5)
