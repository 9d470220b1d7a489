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


@I.ir_module
class TwoKindsOfSizesAndRows:
    """The same, for any number of rows."""

    @T.prim_func(private=True, s_tir=True)
    def doubled(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 4), "float32")
        B = T.match_buffer(b, (n, 4), "float32")
        for i, j in T.grid(n, 4):
            with T.sblock("double"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                B[v_i, v_j] = A[v_i, v_j] * T.float32(2)

    @T.prim_func(private=True, s_tir=True)
    def increased(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(4)), "float32")
        B = T.match_buffer(b, (n, T.int64(4)), "float32")
        for i, j in T.grid(n, T.int64(4)):
            with T.sblock("increase"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                B[v_i, v_j] = A[v_i, v_j] + T.float32(1)

    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        n = T.int64()
        cls = TwoKindsOfSizesAndRows
        with R.dataflow():
            y = R.call_tir(cls.doubled, (x,), out_ty=R.Tensor((n, 4), "float32"))
            z = R.call_tir(cls.increased, (y,), out_ty=R.Tensor((n, 4), "float32"))
            u = R.add(z, z)
            w = R.exp(u)
            R.output(w)
        return w


@I.ir_module
class ProductWithBias:
    """A product of as many rows as two sentences of any length have words, and a bias."""

    @R.function
    def main(
        x: R.Tensor((2, "n", 3), "float32"),
        weight: R.Tensor((3, 4), "float32"),
        bias: R.Tensor((4,), "float32"),
    ) -> R.Tensor((2, "n", 4), "float32"):
        n = T.int64()
        with R.dataflow():
            rows = R.reshape(x, R.shape([2 * n, 3]))
            product = R.matmul(rows, weight)
            result = R.reshape(R.add(product, bias), R.shape([2, n, 4]))
            R.output(result)
        return result


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


def compiled(mod, device):
    return relax.VirtualMachine(tvm.compile(mod, target_of(device)), device_of(device))


def imported(function, *inputs, dynamic):
    return from_exported_program(torch_harness.export(function, inputs, dynamic))


@pytest.mark.parametrize(
    "mod, shape", [(TwoKindsOfSizes, (4,)), (TwoKindsOfSizesAndRows, (3, 4))], ids=["4", "n"]
)
@pytest.mark.each_device
def test_a_group_that_cannot_be_fused_is_right(mod, shape, device, caplog):
    with caplog.at_level(logging.WARNING, "tvm_scatter"):
        machine = compiled(fused_for(mod, device), device)
    given = np.linspace(-1, 1, np.prod(shape), dtype="float32").reshape(shape)
    found = machine["main"](tvm.runtime.tensor(given, device_of(device)))
    np.testing.assert_allclose(found.numpy(), np.exp(2 * (2 * given + 1)), rtol=1e-5)
    [line] = said(caplog)
    assert line.startswith(LINE)
    assert "\n" not in line


def test_a_product_and_a_bias_of_a_multiple_of_a_size_are_fused(caplog):
    with caplog.at_level(logging.WARNING, "tvm_scatter"):
        mod = relax.get_pipeline("zero")(ProductWithBias)
    assert not said(caplog)
    names = [name.name_hint for name, each in mod.functions_items() if not is_relax(each)]
    assert "fused_matmul_add" in names


@pytest.mark.each_device
def test_a_product_and_a_bias_of_a_multiple_of_a_size_are_right(device):
    machine = compiled(fused_for(ProductWithBias, device), device)
    random = np.random.default_rng(0)
    x, weight, bias = (random.random(size, "float32") for size in ((2, 5, 3), (3, 4), (4,)))
    inputs = [tvm.runtime.tensor(each, device_of(device)) for each in (x, weight, bias)]
    np.testing.assert_allclose(machine["main"](*inputs).numpy(), x @ weight + bias, rtol=1e-5)


def test_sizes_in_another_form_are_fused(caplog):
    """TVM infers ``1 + n`` for the concatenation and computes ``n + 1``."""
    mod = imported(steps, torch.ones(5), dynamic=[{0: Dim("n", max=90)}])
    with caplog.at_level(logging.WARNING, "tvm_scatter"):
        mod = relax.get_pipeline("zero")(mod)
    assert not said(caplog)
    names = [name.name_hint for name, each in mod.functions_items() if not is_relax(each)]
    assert len(names) == 1
    assert names[0].startswith("fused_concatenate")


@pytest.mark.turns(2)
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
