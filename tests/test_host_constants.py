"""A model whose parameters are on the GPU compiles, and is right."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from harness import device_of, target_of
from tvm import relax

from tvm_scatter.ops.operators import index_put
from tvm_scatter.passes import HostConstants

WEIGHT = np.arange(12, dtype="float32").reshape(4, 3)


def constant(device):
    tensor = tvm.runtime.tensor(WEIGHT, device_of(device))
    return tvm.ir.GenericConst(tensor, relax.TensorType(WEIGHT.shape, "float32"))


def module(device):
    """``zeros.index_add(0, index, x @ (w + w).t())``: TVM folds the constants."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((5, 3), "float32"))
    index = relax.Var("index", relax.TensorType((5,), "int64"))
    weight = constant(device)
    with builder.function("main", [x, index]):
        with builder.dataflow():
            doubled = builder.emit(relax.op.add(weight, weight))
            product = builder.emit(relax.op.matmul(x, relax.op.permute_dims(doubled)))
            zeros = builder.emit(relax.op.zeros((2, 4), "float32"))
            result = builder.emit_output(index_put(zeros, [index], product, [0], "add"))
        builder.emit_func_output(result)
    return builder.get()


def test_constants_of_the_gpu(device):
    executable = tvm.compile(module(device), target_of(device))
    machine = relax.VirtualMachine(executable, device_of(device))
    x = np.random.default_rng(0).standard_normal((5, 3)).astype("float32")
    index = np.array([0, 1, 0, 1, 1])
    found = machine["main"](*[tvm.runtime.tensor(a, device_of(device)) for a in (x, index)])
    expected = np.zeros((2, 4), "float32")
    np.add.at(expected, index, x @ (2 * WEIGHT).T)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


def test_every_constant_is_brought_to_the_host(device):
    moved = HostConstants()(module(device))
    found = []

    def visit(expression):
        if isinstance(expression, tvm.ir.GenericConst):
            found.append(expression.value)

    relax.analysis.post_order_visit(moved["main"], visit)
    assert [str(each.device) for each in found] == 2 * [str(tvm.cpu())]
    assert all((each.numpy() == WEIGHT).all() for each in found)


def test_a_module_of_host_constants_is_left_alone():
    mod = module("llvm")
    assert HostConstants()(mod).same_as(mod)


@pytest.mark.gpu
@pytest.mark.parametrize("heads", [1, 4])
def test_a_model_exported_from_the_gpu(heads):
    torch = pytest.importorskip("torch")
    geometric = pytest.importorskip("torch_geometric.nn")
    from tvm.relax.frontend.torch import from_exported_program

    from tvm_scatter.demo.compare import difference

    layer = geometric.GATv2Conv(16, 8, heads=heads, add_self_loops=False).eval().cuda()
    inputs = torch.randn(50, 16).cuda(), torch.randint(0, 50, (2, 200)).cuda()
    with torch.no_grad():
        expected = layer(*inputs).cpu().numpy()
        mod = from_exported_program(torch.export.export(layer, inputs))
    executable = tvm.compile(mod, target_of("cuda"))
    machine = relax.VirtualMachine(executable, device_of("cuda"))
    found = machine["main"](
        *[tvm.runtime.tensor(a.cpu().numpy(), device_of("cuda")) for a in inputs]
    )
    results = [found] if isinstance(found, tvm.runtime.Tensor) else list(found)
    assert difference([each.numpy() for each in results], [expected], 1e-4)[1]
