"""Where the time of a model of the demonstration goes."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import tvm
from demo_programs import imported, made

import tvm_scatter
from tvm_scatter.tuning.measure.time_shares import kind_of, time_shares


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("scatter_add_sequential", "scatters"),
        ("check_indices1", "scatters"),
        ("order1", "orders"),
        ("scatter_add_ordered", "scatters"),
        ("fused_matmul_add_relu", "products"),
        ("index_select1", "gathers"),
        ("fused_subtract_tir_exp", "rest"),
        ("vm.builtin.alloc_storage", "rest"),
    ],
)
def test_kinds(name, kind):
    assert kind_of(name) == kind


def test_shares_of_a_model():
    _, inputs = made("GCN")
    target = tvm.target.Target("llvm")
    pipeline = tvm_scatter.pipeline(target)
    executable = tvm.compile(imported("GCN"), target, relax_pipeline=pipeline)
    tensors = [tvm.runtime.tensor(each.numpy()) for each in inputs]
    shares = time_shares(executable, tensors)
    assert sum(shares.values()) == pytest.approx(1)
    assert shares.pop("orders") == 0
    assert set(shares) == {"products", "gathers", "scatters", "rest"}
    assert min(shares.values()) > 0
