"""Where the time of a model of the demonstration goes."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import tvm
from demo_programs import imported, made

import tvm_scatter
from tvm_scatter.demo.time_shares import kind_of, time_shares


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("scatter_add_sequential", "scatters"),
        ("check_indices1", "scatters"),
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
    shares = time_shares(executable, inputs)
    assert set(shares) == {"products", "gathers", "scatters", "rest"}
    assert sum(shares.values()) == pytest.approx(1)
    assert min(shares.values()) > 0
