"""Where TVM cannot fuse a group of functions, the model compiles all the same, and is right."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
import torch_harness
import tvm
from cuda_cases import cuda_target
from harness import device_of, target_of
from torch.export import Dim
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import tvm_scatter
from tvm_scatter.fusion.guarded import GuardedFuseTIR


@I.ir_module
class TwoKindsOfSizes:
    """The size between the functions is of 32 bits for the one, of 64 for the other."""

    @T.prim_func(private=True, s_tir=True)
    def doubled(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("double"):
                v_i = T.axis.spatial(4, i)
                B[v_i] = A[v_i] * T.float32(2)

    @T.prim_func(private=True, s_tir=True)
    def increased(A: T.Buffer((T.int64(4),), "float32"), B: T.Buffer((T.int64(4),), "float32")):
        for i in range(T.int64(4)):
            with T.sblock("increase"):
                v_i = T.axis.spatial(T.int64(4), i)
                B[v_i] = A[v_i] + T.float32(1)

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = TwoKindsOfSizes
        with R.dataflow():
            y = R.call_tir(cls.doubled, (x,), out_ty=R.Tensor((4,), "float32"))
            z = R.call_tir(cls.increased, (y,), out_ty=R.Tensor((4,), "float32"))
            u = R.add(z, z)
            w = R.exp(u)
            R.output(w)
        return w


LINE = "TVM cannot fuse fused_doubled_increased_add_tir_exp; its functions stay apart: Internal"


def steps(x):
    """Differences between neighbours, with nothing ahead of the first."""
    return torch.diff(x, prepend=torch.zeros(1)) * 2


def said(caplog):
    """What this package has said; PyTorch logs to the same place."""
    return [each.getMessage() for each in caplog.records if each.name == "tvm_scatter"]


def fused_for(mod, device):
    """The module itself for GPUs, for which TVM's default pipeline fuses functions."""
    return relax.get_pipeline("zero")(mod) if device == "llvm" else mod


def imported(function, *inputs, dynamic):
    return from_exported_program(torch_harness.export(function, inputs, dynamic))


def test_a_group_that_cannot_be_fused_is_right(device, caplog):
    with caplog.at_level(logging.WARNING, "tvm_scatter"):
        executable = tvm.compile(fused_for(TwoKindsOfSizes, device), target_of(device))
    given = np.array([0.5, -1, 0, 2], "float32")
    machine = relax.VirtualMachine(executable, device_of(device))
    found = machine["main"](tvm.runtime.tensor(given, device_of(device)))
    np.testing.assert_allclose(found.numpy(), np.exp(2 * (2 * given + 1)), rtol=1e-5)
    [line] = said(caplog)
    assert line.startswith(LINE)
    assert "\n" not in line


def test_sizes_in_another_form_are_fused(caplog):
    """TVM infers ``1 + n`` for the concatenation and computes ``n + 1``."""
    mod = imported(steps, torch.ones(5), dynamic=[{0: Dim("n", max=90)}])
    with caplog.at_level(logging.WARNING, "tvm_scatter"):
        mod = relax.get_pipeline("zero")(mod)
    assert not said(caplog)
    names = [name.name_hint for name, each in mod.functions_items() if not is_relax(each)]
    assert len(names) == 1
    assert names[0].startswith("fused_concatenate")


@pytest.mark.parametrize("length", [1, 2, 7])
def test_sizes_in_another_form_are_right(length, device):
    mod = fused_for(imported(steps, torch.ones(5), dynamic=[{0: Dim("n", max=90)}]), device)
    given = torch.randn(length)
    [found] = torch_harness.run(torch_harness.compile_for(mod, device), [given], device)
    torch_harness.assert_same(found, steps(given))


def is_relax(function):
    return isinstance(function, relax.Function)


def test_what_tvm_fuses_is_as_it_was():
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.exp(builder.emit(relax.op.add(x, x))))
        builder.emit_func_output(result)
    names = ("LegalizeOps", "AnnotateTIROpPattern", "FuseOps")
    first = [getattr(relax.transform, name)() for name in names]
    mod = tvm.transform.Sequential(first)(builder.get())
    ours = GuardedFuseTIR()(mod)
    tvm_scatter.uninstall()
    try:
        stock = relax.transform.FuseTIR()(mod)
    finally:
        tvm_scatter.install()
    tvm.ir.assert_structural_equal(ours, stock)


def test_an_error_of_another_origin_is_raised():
    mod = tvm.IRModule({"main": TwoKindsOfSizes["main"].with_attr("Primitive", True)})
    with pytest.raises(Exception, match="doubled"), cuda_target("sm_90"):
        GuardedFuseTIR()(mod)


def test_uninstall_gives_tvms_own_pass_back():
    tvm_scatter.uninstall()
    try:
        assert relax.transform.FuseTIR.__module__.startswith("tvm.")
    finally:
        tvm_scatter.install()
    assert relax.transform.FuseTIR is GuardedFuseTIR
